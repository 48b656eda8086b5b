package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"postrider/internal/catalog/spec"
	"postrider/internal/cli/rest"
	"postrider/internal/terminal"
)

// Kinds of objects that a file declares.
const (
	kindPolicy       = "policy"
	kindTopic        = "topic"
	kindSubscription = "subscription"
)

// kinds are in the order in which they are written: each can depend on those before it.
var kinds = []string{kindPolicy, kindTopic, kindSubscription}

// tables are the settings of each kind.
var tables = map[string][]spec.Setting{
	kindPolicy: spec.Policy, kindTopic: spec.Topic, kindSubscription: spec.Subscription,
}

// key identifies an object. Only a subscription has a topic.
type key struct{ kind, topic, name string }

// title is the name of the object in lists of changes.
func (k key) title() string {
	if k.kind == kindSubscription {
		return k.kind + " " + terminal.Cell(k.topic) + "/" + terminal.Cell(k.name)
	}
	return k.kind + " " + terminal.Cell(k.name)
}

// path is the path of the object in the REST API.
func (k key) path() string {
	switch k.kind {
	case kindPolicy:
		return policyURL(k.name)
	case kindTopic:
		return rest.TopicURL(k.name)
	}
	return rest.SubscriptionURL(k.topic, k.name)
}

// declared is an object of a file.
type declared struct {
	key
	settings  rest.Object // in the form of the API
	ifMissing bool        // an existing object is not changed
}

// applyFile is the content of a file.
type applyFile struct {
	objects []declared
	azure   bool     // a list of the Azure CLI
	notes   []string // parts of that list that postrider does not support
}

func (f *applyFile) find(k key) *declared {
	i := slices.IndexFunc(f.objects, func(d declared) bool { return d.key == k })
	if i < 0 {
		return nil
	}
	return &f.objects[i]
}

// usesTopic reports whether the file has an event subscription of this topic.
func (f *applyFile) usesTopic(topic string) bool {
	return slices.ContainsFunc(f.objects, func(d declared) bool { return d.topic == topic })
}

// add adds an object. It rejects duplicates.
func (f *applyFile) add(d declared) error {
	if d.name == "" || d.kind == kindSubscription && d.topic == "" {
		return fmt.Errorf("a %s without a name%s", d.kind, terminal.Either(d.kind == kindSubscription, " or a topic", ""))
	}
	if f.find(d.key) != nil {
		return fmt.Errorf("%s is duplicate", d.title())
	}
	for i := range f.objects {
		if other := &f.objects[i]; other.kind == d.kind && other.topic == d.topic {
			if err := nameFree(d.name, other.name); err != nil {
				return fmt.Errorf("%s: %w", d.title(), err)
			}
		}
	}
	f.objects = append(f.objects, d)
	return nil
}

// nameFree returns an error if two names differ only in letter case.
func nameFree(name, other string) error {
	if name != other && strings.EqualFold(name, other) {
		return fmt.Errorf("the name conflicts with %q: names must not differ only in letter case", other)
	}
	return nil
}

// readApply reads YAML or JSON: postrider's documents, or a list of the Azure CLI. topic replaces the topics in that
// list, unless it is "".
func readApply(text []byte, topic string) (*applyFile, error) {
	f := &applyFile{}
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
			err = f.document(value, topic)
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
	}
	if topic != "" && !f.azure {
		return nil, errors.New("--topic is for the list of the Azure CLI only")
	}
	slices.SortStableFunc(f.objects, func(a, b declared) int {
		return slices.Index(kinds, a.kind) - slices.Index(kinds, b.kind)
	})
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
		return errors.New("it must have topics, subscriptions or policies, or be the output of az eventgrid " +
			"event-subscription list")
	}
	var wrong []error
	for _, name := range []string{"policies", "topics", "subscriptions"} {
		wrong = append(wrong, f.list(o, name, "", "")...)
	}
	unknown := without(o, "policies", "topics", "subscriptions")
	for _, name := range slices.Sorted(maps.Keys(unknown)) {
		wrong = append(wrong, fmt.Errorf("unknown member %s: a file can have policies, subscriptions and topics", name))
	}
	return errors.Join(wrong...)
}

// list adds the objects of a list, which is a member of o, and returns all mistakes. within and topic are the path and
// the name of the topic that contains the list; "" for a list of the file.
func (f *applyFile) list(o rest.Object, name, within, topic string) (wrong []error) {
	list, ok := o[name].([]any)
	if !ok && o[name] != nil {
		return []error{fmt.Errorf("%s%s must be a list", within, name)}
	}
	for i, value := range list {
		at := fmt.Sprintf("%s%s[%d]", within, name, i)
		entry, ok := value.(rest.Object)
		if !ok {
			wrong = append(wrong, fmt.Errorf("%s must be an object", at))
			continue
		}
		d := declaredBy(name, entry, topic)
		if err := f.add(d); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", at, err))
		}
		if d.kind == kindTopic {
			wrong = append(wrong, f.list(entry, "subscriptions", at+".", d.name)...)
		}
	}
	return wrong
}

// declaredBy returns the object that an entry of a list declares. topic contains the list; "" for one of the file.
func declaredBy(list string, entry rest.Object, topic string) declared {
	d := declared{key: key{name: textOf(entry["name"])}, settings: without(entry, "name")}
	switch list {
	case "policies":
		d.kind = kindPolicy
	case "topics":
		d.kind, d.settings = kindTopic, without(d.settings, "subscriptions")
	case "subscriptions":
		d.kind, d.topic = kindSubscription, topic
		if topic == "" {
			d.topic, d.settings = textOf(entry["topic"]), without(d.settings, "topic")
		}
	}
	return d
}

func without(o rest.Object, names ...string) rest.Object {
	left := maps.Clone(o)
	for _, name := range names {
		delete(left, name)
	}
	return left
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

// diffLine is a changed setting. Before or After is "" if there is no value.
type diffLine struct {
	Property string `json:"property"`
	Before   string `json:"before"`
	After    string `json:"after"`
}

// String is the difference in one line of text: + for a new value, - for a removed one, ~ for a changed one.
func (d diffLine) String() string {
	switch {
	case d.Before == "":
		return fmt.Sprintf("+ %s: %s", d.Property, d.After)
	case d.After == "":
		return fmt.Sprintf("- %s: %s", d.Property, d.Before)
	}
	return fmt.Sprintf("~ %s: %s → %s", d.Property, d.Before, d.After)
}

// diff compares two objects setting by setting. Secrets are masked.
func diff(table []spec.Setting, before, after rest.Object) (lines []diffLine) {
	for i := range table {
		s := &table[i]
		if s.Section == "" && before != nil { // another name of a setting
			continue
		}
		was, is := rest.PresentAt(before, s.Name), rest.PresentAt(after, s.Name)
		if s.Secret {
			was, is = masked(s.Kind, was, was), masked(s.Kind, was, is)
		}
		if !reflect.DeepEqual(was, is) {
			lines = append(lines, diffLine{s.Name, shownValue(was), shownValue(is)})
		}
	}
	slices.SortFunc(lines, func(a, b diffLine) int { return strings.Compare(a.Property, b.Property) })
	return lines
}

const maxShown = 200

func shownValue(value any) string {
	if value == nil {
		return ""
	}
	encoded, err := terminal.EncodePlainly(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	text := []rune(terminal.EscapeControls(string(encoded)))
	if len(text) > maxShown {
		return string(text[:maxShown-1]) + "…"
	}
	return string(text)
}

// plainly converts a value to the types of decoded JSON, so that values of different origin can be compared.
func plainly(value any) (rest.Object, error) {
	encoded, err := terminal.EncodePlainly(value)
	if err != nil {
		return nil, err
	}
	var o rest.Object
	err = terminal.DecodeExactly(encoded, &o)
	return o, err
}

const (
	hidden      = "***"
	hiddenOther = "*** (changed)"
)

// masked hides the secrets of a value: the query of a URL, the values of secret headers, or all of it. A changed query
// or header is still different afterwards; the server never returns other secrets.
func masked(kind spec.Kind, before, value any) any {
	switch {
	case value == nil:
		return nil
	case kind == spec.URL:
		base, query, has := strings.Cut(textOf(value), "?")
		_, was, had := strings.Cut(textOf(before), "?")
		if !has {
			return base
		}
		return base + "?" + terminal.Either(had && was != query, hiddenOther, hidden)
	case kind == spec.JSON:
		return maskedHeaders(before, value)
	}
	return hidden
}

func maskedHeaders(before, value any) any {
	was := secretHeaders(before)
	list, _ := value.([]any)
	shown := make([]any, len(list))
	for i, entry := range list {
		shown[i] = entry
		header, properties := secretHeader(entry)
		if header == nil {
			continue
		}
		old, given := was[textOf(header["name"])], properties["value"] // nil keeps the stored value
		header, properties = maps.Clone(header), maps.Clone(properties)
		properties["value"] = terminal.Either(old != nil && given != nil && old["value"] != given, hiddenOther, hidden)
		header["properties"] = properties
		shown[i] = header
	}
	return shown
}

// secretHeaders returns the properties of the secret headers of a list, by name.
func secretHeaders(value any) map[string]rest.Object {
	found := map[string]rest.Object{}
	list, _ := value.([]any)
	for _, entry := range list {
		if header, properties := secretHeader(entry); header != nil {
			found[textOf(header["name"])] = properties
		}
	}
	return found
}

// secretHeader returns an entry of deliveryAttributeMappings and its properties; nil unless its value is secret.
func secretHeader(entry any) (header, properties rest.Object) {
	header, _ = entry.(rest.Object)
	properties, _ = header["properties"].(rest.Object)
	if properties["isSecret"] != true {
		return nil, nil
	}
	return header, properties
}

func textOf(value any) string {
	text, _ := value.(string)
	return text
}
