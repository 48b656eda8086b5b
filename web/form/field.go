package form

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
	KindText   = "text"
	KindURL    = "url"
	KindNumber = "number"
	KindTime   = "datetime-local"
	KindLines  = "lines"
	KindJSON   = "json"
	KindSelect = "select"
	KindCheck  = "check"
	KindSecret = "password"
)

// fieldKinds are the kinds of field by kind of setting. A Switch with a default is a check box.
var fieldKinds = map[spec.Kind]string{
	spec.Text: KindText, spec.URL: KindURL, spec.PEM: KindLines, spec.Time: KindTime, spec.Choice: KindSelect,
	spec.Whole: KindNumber, spec.Number: KindText, spec.Switch: KindSelect, spec.Lines: KindLines, spec.List: KindText,
	spec.JSON: KindJSON,
}

// Field is a field of a form with its input.
type Field struct {
	Name, Label, Hint, Kind string
	Value, Placeholder      string
	Default                 string // the value of an empty field
	Min, Max                string
	Options                 []Option
	Rows                    int // of a text area
	Wide                    bool
	Required, Focus         bool
	Reload                  string // of a select that decides which other fields there are: the address of its form
	Fixed                   bool   // shown, but cannot be changed
	Secret                  bool   // never shown again after it was sent
	Mistakes                []string
}

// ID is the id of the field's element.
func (f Field) ID() string { return "f-" + f.Name }

// Checked reports whether a check box is checked.
func (f Field) Checked() bool { return f.Value == "true" }

// Stated reports whether the field differs from its default or has an error.
func (f Field) Stated() bool { return f.Value != "" && f.Value != f.Default || len(f.Mistakes) > 0 }

// Option is an option of a select.
type Option struct{ Value, Text string }

// Fields adds the input and its errors. It does not show secrets again.
func (f *Input) Fields(list ...Field) []Field {
	for i := range list {
		field := &list[i]
		field.Value, field.Mistakes = f.Values.Get(field.Name), f.Mistakes[field.Name]
		if field.Secret && field.Value != "" {
			field.Value = ""
			if !f.Live {
				field.Mistakes = append(slices.Clip(field.Mistakes), "Enter the secret again. It is not shown.")
			}
		}
		field.Rows = cmp.Or(field.Rows, min(max(2, strings.Count(field.Value, "\n")+1), 12))
	}
	return list
}

// FieldOf is the field of a setting.
func FieldOf(s *spec.Setting) Field {
	field := Field{
		Name: s.Name, Label: s.Label, Kind: fieldKinds[s.Kind], Hint: s.Help, Placeholder: s.Example, Default: s.Default,
		Required: s.Default == "", Secret: s.Secret && s.Kind != spec.URL,
		Wide: slices.Contains([]spec.Kind{spec.URL, spec.PEM, spec.Lines, spec.JSON, spec.List}, s.Kind),
	}
	switch {
	case IsCheckBox(s):
		field.Kind = KindCheck
		return field
	case s.Kind == spec.Switch:
		field.Options = []Option{{"", "default"}, {"true", "yes"}, {"false", "no"}}
	case s.Kind == spec.Choice:
		field.Options = []Option{{"", "default"}}
		for _, choice := range s.Choices {
			field.Options = append(field.Options, Option{choice, choice})
		}
	case s.Kind == spec.Text && s.Secret:
		field.Kind = KindSecret
	case s.Kind == spec.Lines:
		field.Hint += " One per line."
	case s.Kind == spec.Whole && s.Max > 0:
		field.Min, field.Max = fmt.Sprint(int(s.Min)), fmt.Sprint(int(s.Max))
	}
	if limits := s.Limits(); limits != "" {
		field.Hint += " Allowed: " + limits + "."
	}
	required, ok := strings.CutPrefix(s.Default, "none; ")
	switch {
	case ok:
		field.Hint += " " + strings.ToUpper(required[:1]) + required[1:] + "."
	case s.Default != "" && s.Default != "none":
		field.Hint += " Default: " + s.Default + "."
	}
	return field
}

// IsCheckBox reports whether the field of a setting is a check box: its default is known.
func IsCheckBox(s *spec.Setting) bool {
	return s.Kind == spec.Switch && (s.Default == "true" || s.Default == "false")
}

const timeLayout = "2006-01-02T15:04:05"

// TextOf writes the value of a setting for its field.
func TextOf(s *spec.Setting, value json.RawMessage) string {
	var text string
	var at time.Time
	var lines []string
	var list []json.RawMessage
	switch {
	case s.Kind == spec.Time && json.Unmarshal(value, &at) == nil:
		return at.UTC().Format(timeLayout)
	case s.Kind == spec.Lines && json.Unmarshal(value, &lines) == nil:
		for i, line := range lines {
			lines[i] = LineOf(line)
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

// Value is the input of a setting for the REST API. An empty field is nil, the default.
func (f *Input) Value(s *spec.Setting) any {
	raw, text := f.Values.Get(s.Name), f.Get(s.Name)
	switch {
	case IsCheckBox(s):
		return text == "true"
	case s.Kind == spec.Text && raw != "", s.Kind == spec.PEM && text != "":
		return raw // white space is significant
	case text == "":
		return nil
	case s.Kind == spec.Switch && (text == "true" || text == "false"):
		return text == "true"
	case s.Kind == spec.Whole, s.Kind == spec.Number:
		return NumberOf(text)
	case s.Kind == spec.Lines:
		return f.Lines(s.Name)
	case s.Kind == spec.List:
		list := []json.RawMessage{}
		for _, item := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(", \n", r) }) {
			list = append(list, NumberOf(item))
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
