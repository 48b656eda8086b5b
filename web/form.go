package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"postrider/web/display"
)

// form is what a person has typed, by the name of the field, and what is wrong with it. A field is called as the REST
// API calls the setting: what the API says of a setting finds its field.
type form struct {
	values   url.Values
	mistakes map[string][]string // by the field's name
	others   []string            // of no field
}

func newForm() *form { return &form{values: url.Values{}, mistakes: map[string][]string{}} }

const (
	// maxForm is more than any form of ours holds; the API takes 1 MiB.
	maxForm = 2 << 20
	// maxStrangersForm is what somebody may send who has not signed in.
	maxStrangersForm = 16 << 10
)

// bounded refuses bodies that no form of ours sends. Reading a multipart form keeps 32 MiB of it in memory and writes
// the rest to files, and that whoever has not signed in must not be able to ask for.
func bounded(most int64) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			r := c.Request()
			if r.ContentLength == 0 {
				return next(c)
			}
			media, _, err := mime.ParseMediaType(r.Header.Get(echo.HeaderContentType))
			switch {
			case err != nil || media != echo.MIMEApplicationForm:
				return echo.NewHTTPError(http.StatusUnsupportedMediaType)
			case r.ContentLength > most:
				return echo.NewHTTPError(http.StatusRequestEntityTooLarge)
			}
			r.Body = http.MaxBytesReader(c.Response(), r.Body, most)
			return next(c)
		}
	}
}

// postedForm reads what was sent. Browsers end lines of a text with CR LF.
func postedForm(c echo.Context) (*form, error) {
	r := c.Request()
	if err := r.ParseForm(); err != nil {
		return nil, fmt.Errorf("%w: the form cannot be read", display.ErrQuery)
	}
	f := newForm()
	for name, list := range r.PostForm {
		for _, value := range list {
			f.values.Add(name, strings.ReplaceAll(value, "\r\n", "\n"))
		}
	}
	return f, nil
}

func (f *form) get(name string) string { return strings.TrimSpace(f.values.Get(name)) }

func (f *form) set(name, value string) { f.values.Set(name, value) }

func (f *form) has(name string) bool { return f.get(name) != "" }

// rowOf reads "list[3].field" of this list.
func rowOf(list, name string) (row int, field string, ok bool) {
	rest, ok := strings.CutPrefix(name, list+"[")
	if !ok {
		return 0, "", false
	}
	number, field, ok := strings.Cut(rest, "].")
	row, err := strconv.Atoi(number)
	return row, field, ok && err == nil
}

// rows counts the rows of a list: those of which any field was sent, the first one with the number 0.
func (f *form) rows(list string) (n int) {
	sent := map[int]bool{}
	for name := range f.values {
		if row, _, ok := rowOf(list, name); ok {
			sent[row] = true
		}
	}
	for sent[n] {
		n++
	}
	return n
}

// removeRow takes a row out of a list; those behind it move up.
func (f *form) removeRow(list string, gone int) {
	if gone < 0 || gone >= f.rows(list) {
		return
	}
	kept := url.Values{}
	for name, values := range f.values {
		switch row, field, ok := rowOf(list, name); {
		case ok && row == gone:
		case ok && row > gone:
			kept[fmt.Sprintf("%s[%d].%s", list, row-1, field)] = values
		default:
			kept[name] = values
		}
	}
	f.values = kept
}

// removed reads a button's "list[3]".
func removed(value string) (list string, row int) {
	list, rest, found := strings.Cut(value, "[")
	row, err := strconv.Atoi(strings.TrimSuffix(rest, "]"))
	if !found || err != nil {
		return "", -1
	}
	return list, row
}

// lines are the lines of a text, without those that are empty. A line that begins with a quotation mark is JSON, for
// texts that a line cannot hold or that begin or end with white space.
func (f *form) lines(name string) []string {
	lines := []string{}
	for line := range strings.Lines(f.values.Get(name)) {
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

// lineOf writes a text as lines reads it.
func lineOf(text string) string {
	if text != "" && text == strings.TrimSpace(text) && text[0] != '"' && !strings.ContainsAny(text, "\r\n") {
		return text
	}
	quoted, err := plainJSON(text)
	if err != nil {
		return text
	}
	return string(quoted)
}

func linesOf(texts []string) string {
	lines := make([]string, len(texts))
	for i, text := range texts {
		lines[i] = lineOf(text)
	}
	return strings.Join(lines, "\n")
}

// number is JSON: the number as it was typed, or null where nothing was. What is no number stays a text, for the API to
// refuse.
func (f *form) number(name string) json.RawMessage { return numberOf(f.get(name)) }

func numberOf(text string) json.RawMessage {
	if text == "" {
		return json.RawMessage("null")
	}
	if (text[0] == '-' || text[0] >= '0' && text[0] <= '9') && json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return textJSON(text)
}

func textJSON(text string) json.RawMessage {
	quoted, err := plainJSON(text)
	if err != nil { // a string can always be written
		return json.RawMessage("null")
	}
	return quoted
}

// orNull is the text, or null where there is none.
func (f *form) orNull(name string) any {
	if text := f.get(name); text != "" {
		return text
	}
	return nil
}

// perhaps is true, false or null.
func (f *form) perhaps(name string) any {
	switch f.get(name) {
	case "true":
		return true
	case "false":
		return false
	default:
		return nil
	}
}

// blame takes over what the API refuses, and reports whether err was that. The mistakes of settings go to their fields.
func (f *form) blame(err error, fields []string) bool {
	var refused *apiError
	if !errors.As(err, &refused) ||
		refused.status >= http.StatusInternalServerError && refused.status != http.StatusServiceUnavailable {
		return false
	}
	if len(refused.Details) == 0 {
		f.others = append(f.others, refused.Message)
	}
	for _, problem := range refused.Details {
		field := fieldOf(problem.Target, fields)
		if slices.Contains(nameTargets, problem.Target) && slices.Contains(fields, "name") {
			field = "name"
		}
		if field == "" {
			f.others = append(f.others, problem.Message)
			continue
		}
		f.mistake(field, problem.Message)
	}
	return true
}

// mistake notes one at its field, whose label stands beside it: the API's name of it need not. What was met three times
// is said once.
func (f *form) mistake(field, message string) {
	message = strings.TrimPrefix(message, field+" ")
	if !slices.Contains(f.mistakes[field], message) {
		f.mistakes[field] = append(f.mistakes[field], message)
	}
}

// nameTargets are how the API calls the name of what is made: it is in the address there.
var nameTargets = []string{"topic", "subscription", "policy"}

// fieldOf is the field of what the API names: the one that is called so, or the longest that it lies in, or else the
// first that lies in it.
func fieldOf(target string, fields []string) string {
	found := ""
	target = strings.Replace(target, "].values", "].value", 1) // a condition has one field for both
	for _, field := range fields {
		if (field == target || strings.HasPrefix(target, field+".") || strings.HasPrefix(target, field+"[")) &&
			len(field) > len(found) {
			found = field
		}
	}
	if found != "" || target == "" {
		return found
	}
	for _, field := range fields {
		if strings.HasPrefix(field, target+".") || strings.HasPrefix(field, target+"[") {
			return field
		}
	}
	return ""
}

// refusal is the status and the sentence above a form that was not taken; nothing says what was not done.
func (f *form) refusal(err error, nothing string) *refusedError {
	said := &refusedError{status: http.StatusBadRequest, text: nothing + "."}
	var refused *apiError
	summed := false // the API says more than what is wrong with each setting, as of a handshake
	if errors.As(err, &refused) {
		said.status = refused.status
		summed = refused.Message != "" &&
			!slices.ContainsFunc(refused.Details, func(p apiProblem) bool { return p.Message == refused.Message })
	}
	switch {
	case summed:
		said.text = nothing + ": " + refused.Message
	case len(f.others) > 0:
		said.text = nothing + ": " + strings.TrimSuffix(f.others[0], ".") + "."
	case len(f.mistakes) > 0:
		said.text = nothing + ". What is to be mended is said where it is."
	}
	return said
}
