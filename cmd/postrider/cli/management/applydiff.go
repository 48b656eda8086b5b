package management

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"postrider/catalog/spec"
	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
)

// diffLine is a setting that would change. before or after is "" if there is no value.
type diffLine struct{ property, before, after string }

// String is the difference in one line of text: + for a new value, - for a removed one, ~ for a changed one.
func (d diffLine) String() string {
	switch {
	case d.before == "":
		return fmt.Sprintf("+ %s: %s", d.property, d.after)
	case d.after == "":
		return fmt.Sprintf("- %s: %s", d.property, d.before)
	}
	return fmt.Sprintf("~ %s: %s → %s", d.property, d.before, d.after)
}

// diff compares two objects setting by setting. Secrets are masked.
func diff(table []spec.Setting, before, after rest.Object) (lines []diffLine) {
	for i := range table {
		s := &table[i]
		was, is := valueAt(before, s.Name), valueAt(after, s.Name)
		if s.Secret {
			was, is = masked(s.Kind, was, was), masked(s.Kind, was, is)
		}
		if !reflect.DeepEqual(was, is) {
			lines = append(lines, diffLine{s.Name, shownValue(was), shownValue(is)})
		}
	}
	slices.SortFunc(lines, func(a, b diffLine) int { return strings.Compare(a.property, b.property) })
	return lines
}

// valueAt is the value at a path; nil for none, also for an empty text, list or object.
func valueAt(o rest.Object, path string) any {
	value := rest.ValueAt(o, path)
	if v := reflect.ValueOf(value); value == "" || v.Kind() == reflect.Slice && v.Len() == 0 ||
		v.Kind() == reflect.Map && v.Len() == 0 {
		return nil
	}
	return value
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

// plainly is a value as it comes out of JSON, so that values of different origin can be compared.
func plainly(value any) (o rest.Object, err error) {
	encoded, err := terminal.EncodePlainly(value)
	if err == nil {
		err = terminal.DecodeExactly(encoded, &o)
	}
	return o, err
}

const (
	hidden      = "***"
	hiddenOther = "*** (another one)"
)

// masked hides the secrets of a value: the query of a URL, the values of secret headers, or all of it. A query or a
// header that differs from the value before still differs afterwards; other secrets are never shown by the server.
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
		old, given := was[textOf(header["name"])], properties["value"] // without a value, the stored one is kept
		header, properties = maps.Clone(header), maps.Clone(properties)
		properties["value"] = terminal.Either(old != nil && given != nil && old["value"] != given, hiddenOther, hidden)
		header["properties"] = properties
		shown[i] = header
	}
	return shown
}

// secretHeaders are the properties of the secret headers of a list, by name.
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

// secretHeader is an entry of deliveryAttributeMappings with its properties, if its value is secret; else nil.
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
