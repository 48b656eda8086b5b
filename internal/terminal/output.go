package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"go.yaml.in/yaml/v3"
)

// OutputFlag is the flag -o of verbs that print data.
type OutputFlag struct {
	Output string `short:"o" help:"table, json or yaml." enum:"table,json,yaml" default:"table"`
}

// Print prints a value as JSON or YAML, or calls table.
func (f OutputFlag) Print(out io.Writer, value any, table func(io.Writer)) error {
	var encoded []byte
	var err error
	switch f.Output {
	case "json":
		var text bytes.Buffer
		if encoded, err = EncodePlainly(value); err != nil {
			return err
		}
		err = json.Indent(&text, encoded, "", "  ")
		encoded = append(text.Bytes(), '\n')
	case "yaml":
		encoded, err = encodeYAML(value)
	default:
		w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
		table(w)
		return w.Flush()
	}
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, EscapeControls(string(encoded)))
	return err
}

// EncodeLine encodes a value of a stream: one line of JSON, or a YAML document.
func EncodeLine(form string, value any) (string, error) {
	encoded, err := EncodePlainly(value)
	if err != nil {
		return "", err
	}
	if form == "yaml" {
		encoded, err = encodeYAML(value)
		encoded = append([]byte("---\n"), bytes.TrimSpace(encoded)...)
	}
	return EscapeControls(string(encoded)) + "\n", err
}

// PrintOne prints a value as EncodeLine encodes it, or text if the output is a table.
func (f OutputFlag) PrintOne(out io.Writer, value any, text string) error {
	if f.Output == "table" {
		_, err := fmt.Fprintln(out, text)
		return err
	}
	line, err := EncodeLine(f.Output, value)
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, line)
	return err
}

// EncodePlainly encodes JSON without HTML escapes.
func EncodePlainly(v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSpace(text.Bytes()), err
}

// DecodeExactly decodes JSON. Numbers in values of type any keep all digits.
func DecodeExactly(raw []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	return decoder.Decode(into)
}

// encodeYAML encodes a value as YAML with the names and the order of its JSON.
func encodeYAML(value any) ([]byte, error) {
	text, err := EncodePlainly(value)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	node, err := yamlNode(decoder)
	if err != nil {
		return nil, fmt.Errorf("write YAML: %w", err)
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	err = encoder.Encode(node)
	return out.Bytes(), err
}

// yamlNode reads the next value.
func yamlNode(decoder *json.Decoder) (*yaml.Node, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		node := &yaml.Node{Kind: yaml.SequenceNode}
		if t == '{' {
			node.Kind = yaml.MappingNode
		}
		for decoder.More() { // a member's name is a value as well
			inner, err := yamlNode(decoder)
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, inner)
		}
		_, err := decoder.Token()
		if len(node.Content) == 0 {
			node.Style = yaml.FlowStyle // {} or []
		}
		return node, err
	case string:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: t}, nil
	case nil:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
	default: // a number keeps its digits
		return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(t)}, nil
	}
}
