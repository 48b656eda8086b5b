package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"postrider/web/form"
	"postrider/web/site"
)

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
func postedForm(c echo.Context) *form.Input {
	f := form.New()
	for name, list := range c.Request().PostForm {
		for _, value := range list {
			f.Values.Add(name, strings.ReplaceAll(value, "\r\n", "\n"))
		}
	}
	return f
}

// reject returns the rejection of a form by the API and adds its errors to their fields. summary is what was not done.
// Other errors are returned unchanged.
func reject(f *form.Input, err error, summary string, fields ...string) error {
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
		f.Mistake(field, problem.Message)
	}
	same := func(p apiProblem) bool { return p.Message == rejected.Message }
	switch {
	case rejected.status == http.StatusPreconditionFailed && len(rejected.Details) == 0:
		rejection.Text = summary + ": another user has changed it since you opened this page."
	case rejected.Message != "" && !slices.ContainsFunc(rejected.Details, same): // such as the error of a handshake
		rejection.Text = summary + ": " + rejected.Message
	case len(f.Mistakes[""]) > 0:
		rejection.Text = summary + ": " + strings.TrimSuffix(f.Mistakes[""][0], ".") + "."
	}
	return rejection
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
	fields          func(f *form.Input, at string) []form.Field
	read            func(f *form.Input, at string) any
	write           func(f *form.Input, at string, row json.RawMessage)
}

func (l *rowList) at(row int) string { return fmt.Sprintf("%s[%d]", l.name, row) }

// show returns the list for the page.
func (l *rowList) show(e *editor, setting *form.Field) *formList {
	list := &formList{
		Name: l.name, Title: setting.Label, Hint: setting.Hint + " " + l.hint, Add: "Add " + strings.ToLower(l.row),
		Mistakes: e.Mistakes[l.name],
	}
	for i := range e.Rows(l.name) {
		row := formRow{
			Title: l.row + " " + strconv.Itoa(i+1), Fields: e.Fields(l.fields(e.Input, l.at(i)+".")...), Remove: l.at(i),
		}
		row.Fields[0].Focus = e.focus == l.name && i == e.Rows(l.name)-1
		list.Rows = append(list.Rows, row)
	}
	return list
}
