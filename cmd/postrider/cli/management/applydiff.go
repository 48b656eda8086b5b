package management

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
)

// diffLine is one property that would change. before or after is "" where there is none.
type diffLine struct{ property, before, after string }

// mark is + for what comes, - for what goes, ~ for what changes.
func (d diffLine) mark() string {
	switch {
	case d.before == "":
		return "+"
	case d.after == "":
		return "-"
	}
	return "~"
}

// String is the difference in one line of text.
func (d diffLine) String() string {
	switch d.mark() {
	case "+":
		return fmt.Sprintf("+ %s: %s", d.property, d.after)
	case "-":
		return fmt.Sprintf("- %s: %s", d.property, d.before)
	}
	return fmt.Sprintf("~ %s: %s → %s", d.property, d.before, d.after)
}

// diff compares two objects property by property. Lists are one value.
func diff(before, after rest.Object) (lines []diffLine) {
	was, is := leavesOf("", before), leavesOf("", after)
	names := slices.Sorted(maps.Keys(was))
	for name := range is {
		if _, there := was[name]; !there {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if !reflect.DeepEqual(was[name], is[name]) {
			lines = append(lines, diffLine{name, shownValue(was[name]), shownValue(is[name])})
		}
	}
	return lines
}

// leavesOf are the properties that have a value, by their path. Nothing, an empty text and an empty list are no value.
func leavesOf(path string, value any) map[string]any {
	found := map[string]any{}
	switch v := value.(type) {
	case rest.Object:
		for name, inner := range v {
			maps.Copy(found, leavesOf(strings.TrimPrefix(path+"."+name, "."), inner))
		}
	case nil:
	default:
		if text := shownValue(value); text != "" && text != "[]" && text != `""` {
			found[path] = value
		}
	}
	return found
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

// plainly is a value as it comes out of JSON, so that two of different origin can be compared.
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

// hideSecrets masks what is secret in two sets of an event subscription's settings: the query of its endpoint, the
// values of secret headers, and the secrets of its connection. What differs still differs afterwards, but for the last,
// which the server never shows.
func hideSecrets(before, after rest.Object) {
	hideConnection(before)
	hideConnection(after)
	was, is := textOf(before["endpointUrl"]), textOf(after["endpointUrl"])
	hideQuery(before, hidden)
	hideQuery(after, terminal.Either(queryOf(was) != "" && queryOf(was) != queryOf(is), hiddenOther, hidden))
	old := map[string]any{}
	for name, properties := range secretHeaders(before) {
		old[name], properties["value"] = properties["value"], hidden
	}
	for name, properties := range secretHeaders(after) {
		if properties["value"] == nil { // keeps the one that there is
			properties["value"] = hidden
			continue
		}
		value, there := old[name]
		properties["value"] = terminal.Either(there && value != properties["value"], hiddenOther, hidden)
	}
}

func textOf(value any) string {
	text, _ := value.(string)
	return text
}

func queryOf(endpoint string) string {
	_, query, _ := strings.Cut(endpoint, "?")
	return query
}

func hideQuery(settings rest.Object, mask string) {
	endpoint := textOf(settings["endpointUrl"])
	if base, _, has := strings.Cut(endpoint, "?"); has {
		settings["endpointUrl"] = base + "?" + mask
	}
}

func hideConnection(settings rest.Object) {
	for part, secret := range map[string]string{"oauth2": "clientSecret", "clientCertificate": "privateKey"} {
		if of, ok := settings[part].(rest.Object); ok && of[secret] != nil {
			of[secret] = hidden
		}
	}
}

// secretHeaders are the properties of the secret ones, by name.
func secretHeaders(settings rest.Object) map[string]rest.Object {
	found := map[string]rest.Object{}
	list, _ := settings["deliveryAttributeMappings"].([]any)
	for _, entry := range list {
		header, _ := entry.(rest.Object)
		if properties, ok := header["properties"].(rest.Object); ok && properties["isSecret"] == true {
			found[textOf(header["name"])] = properties
		}
	}
	return found
}
