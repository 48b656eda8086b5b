package management

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
)

// Kinds of what a file may ask for, in the order in which they are written: each may need those before it.
const (
	kindPolicy       = "policy"
	kindTopic        = "topic"
	kindSubscription = "subscription"
)

// wanted is one thing that a file asks for.
type wanted struct {
	kind     string
	topic    string // of a subscription
	name     string
	settings rest.Object // as the API takes them
	// ifMissing: what there is already stays as it is.
	ifMissing bool
}

// title is how it is called where changes are listed.
func (w *wanted) title() string {
	if w.kind == kindSubscription {
		return w.kind + " " + terminal.Cell(w.topic) + "/" + terminal.Cell(w.name)
	}
	return w.kind + " " + terminal.Cell(w.name)
}

// applyFile is what a file asks for.
type applyFile struct {
	wanted []wanted
	// azure: it is a list of the Azure CLI. notOffered are the things in it that there are not here, one a line.
	azure      bool
	notOffered []string
}

func (f *applyFile) find(kind, topic, name string) *wanted {
	i := slices.IndexFunc(f.wanted, func(w wanted) bool { return w.kind == kind && w.topic == topic && w.name == name })
	if i < 0 {
		return nil
	}
	return &f.wanted[i]
}

// add refuses what is there twice.
func (f *applyFile) add(w wanted) error {
	if w.name == "" || w.kind == kindSubscription && w.topic == "" {
		return fmt.Errorf("a %s without a name%s", w.kind, terminal.Either(w.kind == kindSubscription, " or a topic", ""))
	}
	if f.find(w.kind, w.topic, w.name) != nil {
		return fmt.Errorf("%s is there twice", w.title())
	}
	for i := range f.wanted {
		if other := &f.wanted[i]; w.kind != kindPolicy && other.kind == w.kind && other.topic == w.topic {
			if err := nameFree(w.name, other.name); err != nil {
				return fmt.Errorf("%s: %w", w.title(), err)
			}
		}
	}
	f.wanted = append(f.wanted, w)
	return nil
}

// nameFree reports that a name differs from another one only in letter case.
func nameFree(name, other string) error {
	if name != other && strings.EqualFold(name, other) {
		return fmt.Errorf("the name conflicts with %q: names must not differ only in letter case", other)
	}
	return nil
}

// inOrder sorts by kind, and keeps the file's order within each.
func (f *applyFile) inOrder() {
	rank := map[string]int{kindPolicy: 0, kindTopic: 1, kindSubscription: 2}
	slices.SortStableFunc(f.wanted, func(a, b wanted) int { return rank[a.kind] - rank[b.kind] })
}

// readApply reads YAML, of which JSON is a part: documents of ours, or the list that the Azure CLI prints. topic is
// where a list's event subscriptions belong; "" for where it says.
func readApply(text []byte, topic string) (*applyFile, error) {
	f := &applyFile{}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for n := 1; ; n++ {
		var node yaml.Node
		if err := decoder.Decode(&node); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		reader := &yamlReader{left: maxYAMLNodes}
		value, err := reader.value(&node)
		if err == nil {
			err = f.document(value, topic)
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
	}
	if topic != "" && !f.azure {
		return nil, errors.New("--topic is for the list of the Azure CLI, and this is none")
	}
	f.inOrder()
	return f, nil
}

func (f *applyFile) document(value any, topic string) error {
	if list, ok := azureList(value); ok {
		f.azure = true
		return f.fromAzure(list, topic)
	}
	o, ok := value.(rest.Object)
	if value == nil {
		return nil
	}
	if !ok {
		return errors.New("it must have topics, subscriptions or policies, or be the list of az eventgrid " +
			"event-subscription list")
	}
	for _, name := range []string{"policies", "topics", "subscriptions"} {
		list, err := entries(o, name)
		if err != nil {
			return err
		}
		for i, entry := range list {
			if err := f.entry(name, entry); err != nil {
				return fmt.Errorf("%s[%d]: %w", name, i, err)
			}
		}
	}
	for name := range o {
		if !slices.Contains([]string{"policies", "topics", "subscriptions"}, name) {
			return fmt.Errorf("%s is not known here; what is: policies, subscriptions, topics", name)
		}
	}
	return nil
}

// entries are the objects of a list; none where it is left out.
func entries(o rest.Object, name string) ([]rest.Object, error) {
	if o[name] == nil {
		return nil, nil
	}
	list, ok := o[name].([]any)
	if !ok {
		return nil, fmt.Errorf("%s must be a list", name)
	}
	objects := make([]rest.Object, len(list))
	for i, entry := range list {
		if objects[i], ok = entry.(rest.Object); !ok {
			return nil, fmt.Errorf("%s[%d] must be an object", name, i)
		}
	}
	return objects, nil
}

func (f *applyFile) entry(list string, entry rest.Object) error {
	name, _ := entry["name"].(string)
	settings := without(entry, "name")
	switch list {
	case "policies":
		return f.add(wanted{kind: kindPolicy, name: name, settings: settings})
	case "subscriptions":
		topic, _ := entry["topic"].(string)
		return f.add(wanted{kind: kindSubscription, topic: topic, name: name, settings: without(settings, "topic")})
	}
	below, err := entries(entry, "subscriptions")
	if err != nil {
		return err
	}
	if err := f.add(wanted{kind: kindTopic, name: name, settings: without(settings, "subscriptions")}); err != nil {
		return err
	}
	for i, s := range below {
		own, _ := s["name"].(string)
		if err := f.add(wanted{kind: kindSubscription, topic: name, name: own, settings: without(s, "name")}); err != nil {
			return fmt.Errorf("subscriptions[%d]: %w", i, err)
		}
	}
	return nil
}

func without(o rest.Object, names ...string) rest.Object {
	rest := rest.Object{}
	for name, value := range o {
		if !slices.Contains(names, name) {
			rest[name] = value
		}
	}
	return rest
}

// maxYAMLNodes bounds what aliases can make of a small file.
const maxYAMLNodes = 2_000_000

// yamlReader makes of YAML what JSON has. Numbers keep their digits; a time is text.
type yamlReader struct{ left int }

func (r *yamlReader) value(n *yaml.Node) (any, error) {
	if r.left--; r.left < 0 {
		return nil, fmt.Errorf("line %d: too much, or an alias that holds itself", n.Line)
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
			return nil,
				fmt.Errorf("line %d: merge keys (<<) are not read; repeat what is shared, or name it with an alias", key.Line)
		case key.Kind != yaml.ScalarNode:
			return nil, fmt.Errorf("line %d: a name must be text", key.Line)
		case twice:
			return nil, fmt.Errorf("line %d: %s appears twice", key.Line, key.Value)
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
			return nil, fmt.Errorf("line %d: %s is no number of JSON", n.Line, n.Value)
		}
		return json.Number(text), nil
	case "!!binary":
		return nil, fmt.Errorf("line %d: binary values are not read", n.Line)
	}
	return strings.ToValidUTF8(n.Value, "\uFFFD"), nil
}
