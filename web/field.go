package web

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"postrider/internal/catalog/spec"
)

// The kinds of field; each has its part in form-parts.html.
const (
	kindText   = "text"
	kindURL    = "url"
	kindNumber = "number"
	kindTime   = "datetime-local"
	kindLines  = "lines"
	kindJSON   = "json"
	kindSelect = "select"
	kindCheck  = "check"
	kindSecret = "password"
)

// fieldKinds are the kinds of field by kind of setting. A Switch with a default is a check box.
var fieldKinds = map[spec.Kind]string{
	spec.Text: kindText, spec.URL: kindURL, spec.PEM: kindLines, spec.Time: kindTime, spec.Choice: kindSelect,
	spec.Whole: kindNumber, spec.Number: kindText, spec.Switch: kindSelect, spec.Lines: kindLines, spec.List: kindText,
	spec.JSON: kindJSON,
}

// formField is a field of a form with its input.
type formField struct {
	Name, Label, Hint, Kind string
	Value, Placeholder      string
	Default                 string // the value of an empty field
	Min, Max                string
	Options                 []option
	Rows                    int // of a text area
	Wide                    bool
	Required, Focus         bool
	Fixed                   bool // shown, but cannot be changed
	Secret                  bool // never shown again after it was sent
	Mistakes                []string
}

// ID is the id of the field's element.
func (f formField) ID() string { return "f-" + f.Name }

// Checked reports whether a check box is checked.
func (f formField) Checked() bool { return f.Value == "true" }

// stated reports whether the field differs from its default or has an error.
func (f formField) stated() bool { return f.Value != "" && f.Value != f.Default || len(f.Mistakes) > 0 }

// option is an option of a select.
type option struct{ Value, Text string }

// formRow is a row of a list, such as an advanced filter.
type formRow struct {
	Title  string
	Fields []formField
	Remove string // the value of its button
}

// formList is a list of rows that the user adds and removes.
type formList struct {
	Name, Title, Hint, Add string
	Action, Part           string // the address and the part of the page for its buttons
	Rows                   []formRow
	Mistakes               []string
}

// formSection is a part of a form. A folded section is closed if its settings are defaults.
type formSection struct {
	ID, Title, Lead string
	Folded, Open    bool
	Fields          []formField
	List            *formList
	Tester          *filterTester
}

// unfold opens a folded section with stated fields. The lead of a folded section lists its fields.
func (s *formSection) unfold() {
	s.Open = !s.Folded || slices.ContainsFunc(s.Fields, formField.stated) ||
		s.List != nil && len(s.List.Rows)+len(s.List.Mistakes) > 0
	if !s.Folded {
		return
	}
	var labels []string
	for _, field := range s.Fields {
		labels = append(labels, field.Label)
	}
	if s.List != nil {
		labels = append(labels, s.List.Title)
	}
	s.Lead = strings.Join(labels, ", ")
}

// names are the names of the fields, for errors of the API.
func (s *formSection) names() (names []string) {
	add := func(fields []formField) {
		for _, field := range fields {
			names = append(names, field.Name)
		}
	}
	add(s.Fields)
	if s.List != nil {
		names = append(names, s.List.Name)
		for _, row := range s.List.Rows {
			add(row.Fields)
		}
	}
	if s.Tester != nil {
		names = append(names, s.Tester.Event.Name)
	}
	return names
}

// formView is what the form templates show.
type formView struct {
	Action, Back string // the addresses for Save and Cancel
	Save         string // the label of its button
	Etag, Was    string
	Others       []string
	Changes      []change
	Sections     []formSection
}

// fields adds the input and its errors. It does not show secrets again.
func (f *form) fields(list ...formField) []formField {
	for i := range list {
		field := &list[i]
		field.Value, field.Mistakes = f.values.Get(field.Name), f.mistakes[field.Name]
		if field.Secret && field.Value != "" {
			field.Value, field.Mistakes = "", append(slices.Clip(field.Mistakes), "Enter the secret again. It is not shown.")
		}
		field.Rows = cmp.Or(field.Rows, min(max(2, strings.Count(field.Value, "\n")+1), 12))
	}
	return list
}

// settingField is the field of a setting.
func settingField(s *spec.Setting) formField {
	field := formField{
		Name: s.Name, Label: s.Label, Kind: fieldKinds[s.Kind], Hint: s.Help, Placeholder: s.Example, Default: s.Default,
		Required: s.Default == "", Secret: s.Secret && s.Kind != spec.URL,
		Wide: slices.Contains([]spec.Kind{spec.URL, spec.PEM, spec.Lines, spec.JSON, spec.List}, s.Kind),
	}
	switch {
	case checkBox(s):
		field.Kind = kindCheck
		return field
	case s.Kind == spec.Switch:
		field.Options = []option{{"", "default"}, {"true", "yes"}, {"false", "no"}}
	case s.Kind == spec.Choice:
		field.Options = []option{{"", "default"}}
		for _, choice := range s.Choices {
			field.Options = append(field.Options, option{choice, choice})
		}
	case s.Kind == spec.Text && s.Secret:
		field.Kind = kindSecret
	case s.Kind == spec.Lines:
		field.Hint += " One per line."
	case s.Kind == spec.Whole && s.Max > 0:
		field.Min, field.Max = fmt.Sprint(int(s.Min)), fmt.Sprint(int(s.Max))
	}
	if limits := s.Limits(); limits != "" {
		field.Hint += " Allowed: " + limits + "."
	}
	if s.Default != "" && s.Default != "none" {
		field.Hint += " Default: " + s.Default + "."
	}
	return field
}

func checkBox(s *spec.Setting) bool {
	return s.Kind == spec.Switch && (s.Default == "true" || s.Default == "false")
}

// settingsIn are the settings in an object of the REST API, by name, without null values and secrets.
func settingsIn(table []spec.Setting, object json.RawMessage) map[string]json.RawMessage {
	found := map[string]json.RawMessage{}
	for i := range table {
		s := &table[i]
		if value := spec.At(object, s.Name); value != nil && (!s.Secret || s.Kind == spec.JSON) {
			found[s.Name] = value
		}
	}
	return found
}

const timeLayout = "2006-01-02T15:04:05"

// fieldText writes the value of a setting for its field.
func fieldText(s *spec.Setting, value json.RawMessage) string {
	var text string
	var at time.Time
	var lines []string
	var list []json.RawMessage
	switch {
	case s.Kind == spec.Time && json.Unmarshal(value, &at) == nil:
		return at.UTC().Format(timeLayout)
	case s.Kind == spec.Lines && json.Unmarshal(value, &lines) == nil:
		for i, line := range lines {
			lines[i] = lineOf(line)
		}
		return strings.Join(lines, "\n")
	case s.Kind == spec.List && json.Unmarshal(value, &list) == nil:
		return joinJSON(list, ", ")
	case s.Kind == spec.JSON && json.Unmarshal(value, &list) == nil && len(list) > 0:
		return "[\n  " + joinJSON(list, ",\n  ") + "\n]"
	case s.Kind == spec.JSON && (string(value) == "{}" || string(value) == "[]"):
		return ""
	case json.Unmarshal(value, &text) == nil:
		return text
	}
	return string(value)
}

func joinJSON(list []json.RawMessage, separator string) string {
	texts := make([]string, len(list))
	for i, value := range list {
		texts[i] = string(value)
	}
	return strings.Join(texts, separator)
}

// value is the input of a setting for the REST API. An empty field is nil, the default.
func (f *form) value(s *spec.Setting) any {
	raw, text := f.values.Get(s.Name), f.get(s.Name)
	switch {
	case checkBox(s):
		return text == "true"
	case s.Kind == spec.Text && raw != "", s.Kind == spec.PEM && text != "":
		return raw // white space is significant
	case text == "":
		return nil
	case s.Kind == spec.Switch && (text == "true" || text == "false"):
		return text == "true"
	case s.Kind == spec.Whole, s.Kind == spec.Number:
		return numberOf(text)
	case s.Kind == spec.Lines:
		return f.lines(s.Name)
	case s.Kind == spec.List:
		list := []json.RawMessage{}
		for _, item := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(", \n", r) }) {
			list = append(list, numberOf(item))
		}
		return list
	case s.Kind == spec.JSON && json.Valid([]byte(text)):
		return json.RawMessage(text)
	case s.Kind == spec.Time:
		for _, layout := range []string{"2006-01-02T15:04", timeLayout} {
			if at, err := time.Parse(layout, text); err == nil {
				return at.Format(time.RFC3339)
			}
		}
	}
	return text
}

// put sets a member of an object by its path.
func put(object map[string]any, path string, value any) {
	group, rest, nested := strings.Cut(path, ".")
	if !nested {
		object[path] = value
		return
	}
	members, ok := object[group].(map[string]any)
	if !ok {
		members = map[string]any{}
		object[group] = members
	}
	put(members, rest, value)
}

// orNull replaces objects whose members are all null with null.
func orNull(value any) any {
	members, ok := value.(map[string]any)
	if !ok {
		return value
	}
	empty := true
	for name, member := range members {
		members[name] = orNull(member)
		empty = empty && members[name] == nil
	}
	if empty {
		return nil
	}
	return members
}
