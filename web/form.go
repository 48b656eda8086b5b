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
	"postrider/web/site"
)

// form is what a user has entered, by the name of the field, and what is wrong with it. A field has the name that the
// setting has in the REST API: an error of the API finds its field.
type form struct {
	values   url.Values
	mistakes map[string][]string // by the field's name; "" for those of no field
}

func newForm() *form { return &form{values: url.Values{}, mistakes: map[string][]string{}} }

const (
	// maxForm is more than any form of ours holds; the API takes 1 MiB.
	maxForm = 2 << 20
	// maxStrangersForm bounds a form that needs no login.
	maxStrangersForm = 16 << 10
)

// bounded rejects bodies that no form of ours sends. Reading a multipart form keeps 32 MiB of it in memory and writes
// the rest to files, which a client that has not signed in must not be able to cause.
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

// rows counts the rows of a list: those of which any field was sent, from number 0 on.
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

// lines are the lines of a text, without empty ones. A line that begins with a quotation mark is JSON, for texts that a
// line cannot hold or that begin or end with white space.
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
	return string(textJSON(text))
}

// numberOf is the number with every digit that was entered. What is no number stays a text, for the API to reject.
func numberOf(text string) json.RawMessage {
	if text != "" && (text[0] == '-' || text[0] >= '0' && text[0] <= '9') && json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return textJSON(text)
}

func textJSON(text string) json.RawMessage {
	quoted, _ := plainJSON(text) // a string can always be written
	return quoted
}

// reject is the sentence above a form that the API has rejected; nothing says what was not done. What the API says of a
// field is noted there. Other errors are returned as they are.
func (f *form) reject(err error, nothing string, fields ...string) error {
	var rejected *apiError
	if !errors.As(err, &rejected) ||
		rejected.status >= http.StatusInternalServerError && rejected.status != http.StatusServiceUnavailable {
		return err
	}
	said := &site.RejectionError{Status: rejected.status, Text: nothing + ". Fix the errors below."}
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
		said.Text = nothing + ": another user has changed it since you opened this page."
	case rejected.Message != "" && !slices.ContainsFunc(rejected.Details, same): // of a handshake
		said.Text = nothing + ": " + rejected.Message
	case len(f.mistakes[""]) > 0:
		said.Text = nothing + ": " + strings.TrimSuffix(f.mistakes[""][0], ".") + "."
	}
	return said
}

// again shows the page of a form with the reason why it was rejected, unless href is where the user continues.
func again(c echo.Context, href string, err error, show func() error) error {
	var said *site.RejectionError
	switch {
	case errors.As(err, &said):
		site.Reject(c, said)
	case err != nil:
		return err
	case href != "":
		return c.Redirect(http.StatusSeeOther, href)
	}
	return show()
}

// mistake notes one at its field, whose label stands beside it: it need not repeat the name.
func (f *form) mistake(field, message string) {
	message = strings.TrimPrefix(message, field+" ")
	if !slices.Contains(f.mistakes[field], message) {
		f.mistakes[field] = append(f.mistakes[field], message)
	}
}

// nameTargets are the API's names for the name of what is created: it is in the address there.
var nameTargets = []string{"topic", "subscription", "policy"}

// fieldOf is the field of a target of the API: the one of this name, else the longest that contains it, else the first
// that it contains.
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
