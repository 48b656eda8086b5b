package openapi

import (
	"bytes"
	"encoding/json"
	"strings"

	"go.yaml.in/yaml/v3"
)

// phrase is a piece of a text; code is what stood between backticks.
type phrase struct {
	Text string
	Code bool
}

// paragraphs reads what descriptions are written in: paragraphs with an empty line between them, and code in backticks.
func paragraphs(text string) (list [][]phrase) {
	for part := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		var phrases []phrase
		for i, piece := range strings.Split(strings.Join(strings.Fields(part), " "), "`") {
			if piece != "" {
				phrases = append(phrases, phrase{piece, i%2 == 1})
			}
		}
		if phrases != nil {
			list = append(list, phrases)
		}
	}
	return list
}

// widestLine is how many characters a value of an example may have to stand in one line.
const widestLine = 92

// printJSON writes an example of the file as JSON, its members in their order.
func printJSON(node *yaml.Node) string {
	var out strings.Builder
	printNode(&out, node, "")
	return out.String()
}

func printNode(out *strings.Builder, node *yaml.Node, indent string) {
	if line := oneLineJSON(node); len(line)+len(indent) <= widestLine || len(node.Content) == 0 {
		out.WriteString(line)
		return
	}
	open, shut, step := "{", "}", 2
	if node.Kind == yaml.SequenceNode {
		open, shut, step = "[", "]", 1
	}
	out.WriteString(open)
	for i := 0; i < len(node.Content); i += step {
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteString("\n" + indent + "  ")
		if step == 2 {
			out.WriteString(quoteJSON(node.Content[i].Value) + ": ")
		}
		printNode(out, node.Content[i+step-1], indent+"  ")
	}
	out.WriteString("\n" + indent + shut)
}

func oneLineJSON(node *yaml.Node) string {
	var parts []string
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i < len(node.Content); i += 2 {
			parts = append(parts, quoteJSON(node.Content[i].Value)+": "+oneLineJSON(node.Content[i+1]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case yaml.SequenceNode:
		for _, item := range node.Content {
			parts = append(parts, oneLineJSON(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	default:
		return scalarJSON(node)
	}
}

func scalarJSON(node *yaml.Node) string {
	switch node.ShortTag() {
	case "!!int", "!!float", "!!bool", "!!null":
		return node.Value
	default:
		return quoteJSON(node.Value)
	}
}

// quoteJSON leaves <, > and & as they are: the template escapes what the page needs.
func quoteJSON(text string) string {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a string can always be written
	return strings.TrimSuffix(out.String(), "\n")
}

// shellQuoted is a text as a word of the shell.
func shellQuoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
