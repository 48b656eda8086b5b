package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"postrider/internal/cli/rest"
	"postrider/internal/terminal"
)

// applyFile is the content of a file, as the server reads it.
type applyFile struct {
	objects rest.Object // lists of policies, topics and subscriptions
	azure   bool        // it has a list of the Azure CLI, or a template
	notes   []string    // parts of these, or of an emulator's file, that postrider does not support

	applyFlags

	replaced map[string]bool // entries of the flags, as "--endpoint NAME", that an event subscription has
}

// applyFlags change what a file has.
type applyFlags struct {
	topic string // replaces the topics of Azure's event subscriptions, unless it is ""
	// endpoints and connectionStrings replace those of event subscriptions, by NAME or TOPIC/NAME.
	endpoints, connectionStrings map[string]string
}

// readApply reads YAML or JSON: postrider's documents, a list of the Azure CLI, a template of Azure, or the
// configuration of an emulator.
func readApply(text []byte, flags applyFlags) (*applyFile, error) {
	f := &applyFile{objects: rest.Object{}, applyFlags: flags, replaced: map[string]bool{}}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for n := 1; ; n++ {
		var node yaml.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		reader := &yamlReader{left: maxYAMLNodes}
		value, err := reader.value(&node)
		if err == nil {
			err = f.document(value)
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
	}
	if f.topic != "" && !f.azure {
		return nil, errors.New("--topic is for the list of the Azure CLI and for templates only")
	}
	f.replaceEndpoints(rest.Objects(f.objects, "subscriptions"), "")
	for _, t := range rest.Objects(f.objects, "topics") {
		f.replaceEndpoints(rest.Objects(t, "subscriptions"), textOf(t["name"]))
	}
	for flag, names := range map[string]map[string]string{
		endpointFlag: f.endpoints, connectionStringFlag: f.connectionStrings,
	} {
		for name := range names {
			if !f.replaced[flag+name] {
				return nil, fmt.Errorf("%s%s: the file has no event subscription %[2]s", flag, name)
			}
		}
	}
	return f, nil
}

func (f *applyFile) document(value any) error {
	if list, ok := azureList(value); ok {
		f.fromAzure(list)
		return nil
	}
	o, ok := value.(rest.Object)
	if f.fromTemplate(o) {
		return nil
	}
	if is, err := f.fromEmulator(o); is {
		return err
	}
	if value != nil && !ok {
		return errors.New("it must have topics, subscriptions or policies, be the output of az eventgrid " +
			"event-subscription list, an Azure Resource Manager template, or the configuration of an emulator")
	}
	for name, value := range o { // the server checks them
		if list, isList := value.([]any); isList {
			f.add(name, list...)
		} else if value != nil {
			f.objects[name] = value
		}
	}
	return nil
}

// The flags with an entry for an event subscription.
const endpointFlag, connectionStringFlag = "--endpoint ", "--connection-string "

// endpoint and connectionString are the flags for an event subscription; "" without one.
func (f *applyFile) endpoint(topic, name string) string {
	return f.entry(endpointFlag, f.endpoints, topic, name)
}

func (f *applyFile) connectionString(topic, name string) string {
	return f.entry(connectionStringFlag, f.connectionStrings, topic, name)
}

func (f *applyFile) entry(flag string, entries map[string]string, topic, name string) (value string) {
	for _, name := range []string{name, topic + "/" + name} {
		if entries[name] != "" {
			value, f.replaced[flag+name] = entries[name], true
		}
	}
	return value
}

// replaceEndpoints replaces the endpoints of a list of event subscriptions, or the connection strings of their
// destinations; topic contains it, unless it is "".
func (f *applyFile) replaceEndpoints(list []rest.Object, topic string) {
	for _, s := range list {
		topic, name := cmp.Or(topic, textOf(s["topic"])), textOf(s["name"])
		if url := f.endpoint(topic, name); url != "" {
			s["endpointUrl"] = url
			delete(s, "destination")
		}
		if text := f.connectionString(topic, name); text != "" {
			setAt(s, "destination.properties.connectionString", text)
		}
	}
}

// note adds a part of the file that postrider does not support.
func (f *applyFile) note(at, format string, args ...any) {
	f.notes = append(f.notes, at+": "+fmt.Sprintf(format, args...))
}

// add adds objects to a list.
func (f *applyFile) add(list string, objects ...any) {
	earlier, _ := f.objects[list].([]any)
	f.objects[list] = append(earlier, objects...)
}

// maxYAMLNodes limits the expansion of aliases.
const (
	maxYAMLNodes = 2_000_000
	maxYAMLDepth = 10_000 // an alias that contains itself would fill the stack
)

// yamlReader converts YAML to JSON values. Numbers keep their digits; times become text.
type yamlReader struct{ left, depth int }

func (r *yamlReader) value(n *yaml.Node) (any, error) {
	r.left--
	r.depth++
	defer func() { r.depth-- }()
	if r.left < 0 || r.depth > maxYAMLDepth {
		return nil, fmt.Errorf("line %d: more than %d values, or an alias that contains itself", n.Line, maxYAMLNodes)
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return r.value(n.Content[0])
	case yaml.AliasNode:
		return r.value(n.Alias)
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, entry := range n.Content {
			var err error
			if list[i], err = r.value(entry); err != nil {
				return nil, err
			}
		}
		return list, nil
	case yaml.MappingNode:
		return r.mapping(n)
	default:
		return scalar(n)
	}
}

func (r *yamlReader) mapping(n *yaml.Node) (rest.Object, error) {
	o := rest.Object{}
	for i := 0; i < len(n.Content); i += 2 {
		key := n.Content[i]
		value, err := r.value(n.Content[i+1])
		if err != nil {
			return nil, err
		}
		switch _, twice := o[key.Value]; {
		case key.Tag == "!!merge":
			return nil, fmt.Errorf("line %d: merge keys (<<) are not supported; repeat the values, or use an alias", key.Line)
		case key.Kind != yaml.ScalarNode:
			return nil, fmt.Errorf("line %d: a name must be text", key.Line)
		case twice:
			return nil, fmt.Errorf("line %d: %s is duplicate", key.Line, key.Value)
		}
		o[key.Value] = value
	}
	return o, nil
}

func scalar(n *yaml.Node) (any, error) {
	switch n.ShortTag() {
	case "!!null":
		return nil, nil
	case "!!bool":
		var yes bool
		err := n.Decode(&yes)
		return yes, err
	case "!!int", "!!float":
		if number, err := jsonNumber(n.Value); err == nil {
			return number, nil
		}
		var f float64 // 0x1F, 1_000, .5
		if err := n.Decode(&f); err != nil {
			return nil, err
		}
		text, err := json.Marshal(f)
		if err != nil {
			return nil, fmt.Errorf("line %d: %s is not a number of JSON", n.Line, n.Value)
		}
		return json.Number(text), nil
	case "!!binary":
		return nil, fmt.Errorf("line %d: binary values are not supported", n.Line)
	}
	return strings.ToValidUTF8(n.Value, "\uFFFD"), nil
}

// plainly converts a value to the types of decoded JSON.
func plainly(value any) (rest.Object, error) {
	encoded, err := terminal.EncodePlainly(value)
	if err != nil {
		return nil, err
	}
	var o rest.Object
	err = terminal.DecodeExactly(encoded, &o)
	return o, err
}

func textOf(value any) string {
	text, _ := value.(string)
	return text
}
