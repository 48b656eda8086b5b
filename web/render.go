package web

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io"

	"github.com/labstack/echo/v4"
)

//go:embed templates/*.html
var templateFiles embed.FS

// samples name every page with a value that fills it, one row in each list: html/template finds a missing field or an
// unsafe place only when it executes, and that shall be at the start and not in front of a person.
func samples() map[string]any {
	return map[string]any{
		"overview":      overviewView{NewestDeadLetter: &moment{}},
		"subscriptions": subscriptionsView{Rows: []subscriptionRow{{OnHold: "probation", Probation: &probationView{Cause: "x", NextProbe: &moment{}}}}, Limit: 1},
		"dead-letters":  deadLettersView{Rows: []deadLetterRow{{LastAttempt: &moment{}, Cut: true}}, Older: "x"},
		"error":         errorView{Detail: "x"},
	}
}

// parseTemplates parses every page within the layout and tries it on its sample.
func parseTemplates(stylesheet string) (map[string]*template.Template, error) {
	helpers := template.FuncMap{"stylesheet": func() string { return stylesheet }}
	parsed := map[string]*template.Template{}
	for name, sample := range samples() {
		t, err := template.New("layout.html").Funcs(helpers).ParseFS(templateFiles, "templates/layout.html", "templates/"+name+".html")
		if err != nil {
			return nil, fmt.Errorf("parse template %s: %w", name, err)
		}
		if err := t.Execute(io.Discard, sample); err != nil {
			return nil, fmt.Errorf("try template %s: %w", name, err)
		}
		parsed[name] = t
	}
	return parsed, nil
}

// render writes a page. It is made in memory first: half a page with status 200 cannot be taken back.
func (p *pages) render(c echo.Context, status int, name string, view any) error {
	var page bytes.Buffer
	if err := p.templates[name].Execute(&page, view); err != nil {
		return fmt.Errorf("render page %s: %w", name, err)
	}
	return c.HTMLBlob(status, page.Bytes())
}
