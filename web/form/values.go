// Package form has the input of a form and its fields, most of which come from a table of settings.
package form

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"postrider/internal/jsonscan"
)

// Input is a user's input and its errors, by field. A field has the name of its setting in the REST API, so that errors
// of the API find their fields.
type Input struct {
	Values   url.Values
	Mistakes map[string][]string // by field; "" has errors without a field
	Live     bool                // the page stays, with the secrets that were entered
}

// New is an empty input.
func New() *Input { return &Input{Values: url.Values{}, Mistakes: map[string][]string{}} }

// Get is the first value of a field without white space around it; "" without one.
func (f *Input) Get(name string) string { return strings.TrimSpace(f.Values.Get(name)) }

// Set sets the value of a field.
func (f *Input) Set(name, value string) { f.Values.Set(name, value) }

// Has reports whether a field has a value other than white space.
func (f *Input) Has(name string) bool { return f.Get(name) != "" }

// RowOf parses the name "list[3].field" of a field of list.
func RowOf(list, name string) (row int, field string, ok bool) {
	rest, ok := strings.CutPrefix(name, list+"[")
	if !ok {
		return 0, "", false
	}
	number, field, ok := strings.Cut(rest, "].")
	row, err := strconv.Atoi(number)
	return row, field, ok && err == nil
}

// Rows counts the rows of a list that have any field, from number 0 on.
func (f *Input) Rows(list string) (n int) {
	sent := map[int]bool{}
	for name := range f.Values {
		if row, _, ok := RowOf(list, name); ok {
			sent[row] = true
		}
	}
	for sent[n] {
		n++
	}
	return n
}

// RemoveRow removes a row of a list; those after it move up.
func (f *Input) RemoveRow(list string, removed int) {
	if removed < 0 || removed >= f.Rows(list) {
		return
	}
	kept := url.Values{}
	for name, values := range f.Values {
		switch row, field, ok := RowOf(list, name); {
		case ok && row == removed:
		case ok && row > removed:
			kept[fmt.Sprintf("%s[%d].%s", list, row-1, field)] = values
		default:
			kept[name] = values
		}
	}
	f.Values = kept
}

// Lines are the non-empty lines of a text. A line that begins with a quotation mark is a JSON string, for texts with
// line ends or outer white space.
func (f *Input) Lines(name string) []string {
	lines := []string{}
	for line := range strings.Lines(f.Values.Get(name)) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		var text string
		if line[0] == '"' && json.Unmarshal([]byte(line), &text) == nil {
			line = text
		}
		lines = append(lines, line)
	}
	return lines
}

// LineOf writes a text for Lines.
func LineOf(text string) string {
	if text != "" && text == strings.TrimSpace(text) && text[0] != '"' && !strings.ContainsAny(text, "\r\n") {
		return text
	}
	return string(TextJSON(text))
}

// NumberOf keeps every digit of a number. Other text becomes a string, which the API rejects.
func NumberOf(text string) json.RawMessage {
	if text != "" && (text[0] == '-' || text[0] >= '0' && text[0] <= '9') && json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return TextJSON(text)
}

// TextJSON is a text as a JSON string, without escapes for HTML.
func TextJSON(text string) json.RawMessage { return jsonscan.MustEncode(text) }

// Mistake adds an error to its field, without the name of the field.
func (f *Input) Mistake(field, message string) {
	message = strings.TrimPrefix(message, field+" ")
	if !slices.Contains(f.Mistakes[field], message) {
		f.Mistakes[field] = append(f.Mistakes[field], message)
	}
}
