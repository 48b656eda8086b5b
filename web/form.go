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

	"postrider/web/site"
)

// form is a user's input and its errors, by field. A field has the name of its setting in the REST API, so that errors
// of the API find their fields.
type form struct {
	values   url.Values
	mistakes map[string][]string // by field; "" has errors without a field
}

func newForm() *form { return &form{values: url.Values{}, mistakes: map[string][]string{}} }

const (
	// maxForm is the largest form in bytes. An event has up to 1 MiB, and a form writes many characters as three.
	maxForm = 4 << 20
	// maxPublicForm is the largest form without sign-in, in bytes.
	maxPublicForm = 16 << 10
)

// bounded rejects large bodies and multipart forms. Parsing a multipart form keeps 32 MiB in memory and writes the rest
// to files; clients without a session must not cause that.
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

// postedForm is the form of a request. Browsers send line ends as CR LF.
func postedForm(c echo.Context) *form {
	f := newForm()
	for name, list := range c.Request().PostForm {
		for _, value := range list {
			f.values.Add(name, strings.ReplaceAll(value, "\r\n", "\n"))
		}
	}
	return f
}

func (f *form) get(name string) string { return strings.TrimSpace(f.values.Get(name)) }

func (f *form) set(name, value string) { f.values.Set(name, value) }

func (f *form) has(name string) bool { return f.get(name) != "" }

// rowOf parses the name "list[3].field" of a field of list.
func rowOf(list, name string) (row int, field string, ok bool) {
	rest, ok := strings.CutPrefix(name, list+"[")
	if !ok {
		return 0, "", false
	}
	number, field, ok := strings.Cut(rest, "].")
	row, err := strconv.Atoi(number)
	return row, field, ok && err == nil
}

// rows counts the rows of a list that have any field, from number 0 on.
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

// removeRow removes a row of a list; those after it move up.
func (f *form) removeRow(list string, removed int) {
	if removed < 0 || removed >= f.rows(list) {
		return
	}
	kept := url.Values{}
	for name, values := range f.values {
		switch row, field, ok := rowOf(list, name); {
		case ok && row == removed:
		case ok && row > removed:
			kept[fmt.Sprintf("%s[%d].%s", list, row-1, field)] = values
		default:
			kept[name] = values
		}
	}
	f.values = kept
}

// lines are the non-empty lines of a text. A line that begins with a quotation mark is a JSON string, for texts with
// line ends or outer white space.
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

// lineOf writes a text for lines.
func lineOf(text string) string {
	if text != "" && text == strings.TrimSpace(text) && text[0] != '"' && !strings.ContainsAny(text, "\r\n") {
		return text
	}
	return string(textJSON(text))
}

// numberOf keeps every digit of a number. Other text becomes a string, which the API rejects.
func numberOf(text string) json.RawMessage {
	if text != "" && (text[0] == '-' || text[0] >= '0' && text[0] <= '9') && json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return textJSON(text)
}

func textJSON(text string) json.RawMessage {
	quoted, _ := plainJSON(text) // a string always marshals
	return quoted
}

// reject returns the rejection of a form by the API and adds its errors to their fields. summary is what was not done.
// Other errors are returned unchanged.
func (f *form) reject(err error, summary string, fields ...string) error {
	var rejected *apiError
	if !errors.As(err, &rejected) ||
		rejected.status >= http.StatusInternalServerError && rejected.status != http.StatusServiceUnavailable {
		return err
	}
	rejection := &site.RejectionError{Status: rejected.status, Text: summary + ". Fix the errors below."}
	for _, problem := range rejected.Details {
		field := fieldOf(problem.Target, fields)
		if slices.Contains(nameTargets, problem.Target) && slices.Contains(fields, "name") {
			field = "name"
		}
		f.mistake(field, problem.Message)
	}
	same := func(p apiProblem) bool { return p.Message == rejected.Message }
	switch {
	case rejected.status == http.StatusPreconditionFailed && len(rejected.Details) == 0:
		rejection.Text = summary + ": another user has changed it since you opened this page."
	case rejected.Message != "" && !slices.ContainsFunc(rejected.Details, same): // such as the error of a handshake
		rejection.Text = summary + ": " + rejected.Message
	case len(f.mistakes[""]) > 0:
		rejection.Text = summary + ": " + strings.TrimSuffix(f.mistakes[""][0], ".") + "."
	}
	return rejection
}

// mistake adds an error to its field, without the name of the field.
func (f *form) mistake(field, message string) {
	message = strings.TrimPrefix(message, field+" ")
	if !slices.Contains(f.mistakes[field], message) {
		f.mistakes[field] = append(f.mistakes[field], message)
	}
}

// nameTargets are the API's names for the name of a new object, which is in the path there.
var nameTargets = []string{"topic", "subscription", "policy"}

// fieldOf is the field for a target of the API: the field of this name, or the longest that contains it, or the first
// that it contains.
func fieldOf(target string, fields []string) string {
	found := ""
	target = strings.Replace(target, "].values", "].value", 1) // both have one field
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

// rowList is a setting with rows that buttons add and remove. at is the prefix of the names of a row's fields.
type rowList struct {
	name, row, hint string
	fields          func(f *form, at string) []formField
	read            func(f *form, at string) any
	write           func(f *form, at string, row json.RawMessage)
}

func (l *rowList) at(row int) string { return fmt.Sprintf("%s[%d]", l.name, row) }

// show returns the list for the page.
func (l *rowList) show(e *editor, setting *formField) *formList {
	list := &formList{
		Name: l.name, Title: setting.Label, Hint: setting.Hint + " " + l.hint, Add: "Add " + strings.ToLower(l.row),
		Mistakes: e.mistakes[l.name],
	}
	for i := range e.rows(l.name) {
		row := formRow{
			Title: l.row + " " + strconv.Itoa(i+1), Fields: e.fields(l.fields(e.form, l.at(i)+".")...), Remove: l.at(i),
		}
		row.Fields[0].Focus = e.focus == l.name && i == e.rows(l.name)-1
		list.Rows = append(list.Rows, row)
	}
	return list
}
