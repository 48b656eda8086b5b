package web

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"html/template"
	"reflect"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/web/display"
)

//go:embed templates/*.html
var templateFiles embed.FS

// views name every page's template with the type of what it shows. html/template finds a missing field or an unsafe
// place only when it executes, and that shall be at the start and not in front of a person: each is tried on a value in
// which every list has a row.
var views = map[string]any{
	"overview": overviewView{}, "problems": problemsView{}, "tail": tailView{},
	"events": eventsView{}, "event": eventView{}, "deliveries": deliveriesView{}, "delivery": deliveryView{},
	"batches": batchesView{}, "batch": batchView{},
	"dead-letters": deadLettersView{}, "dead-letter": deadLetterView{}, "dead-letter-purge": deadLetterView{},
	"dead-letters-many": manyView{},
	"operations":        operationsView{}, "operation": operationView{},
	"topics": topicsView{}, "topic": topicView{}, "subscriptions": subscriptionsView{}, "subscription": subscriptionView{},
	"policies": policiesView{},
	"jobs":     jobsView{}, "storage": storageView{}, "audit": auditView{},
	"sign-in": signInView{}, "account": accountView{}, "login": loginView{}, "users": usersView{},
	"api-keys":          apiKeysView{},
	"subscription-form": formView{}, "subscription-topic": chooseView{}, "topic-form": formView{},
	"policy-form": formView{}, "topic-keys": keysView{}, "publish": publishView{}, "subscription-delete": deletionView{},
	"topic-delete": deletionView{}, "policy-delete": deletionView{},
	"error": errorView{},
}

// helpers are what templates may call.
func (p *pages) helpers() template.FuncMap {
	return template.FuncMap{
		"asset":        func(file string) string { return p.files[file].path },
		"moment":       func(t time.Time) display.Moment { return display.MomentOf(t, p.now()) },
		"text":         display.Visible,
		"pretty":       func(text string) string { return display.Pretty(display.Visible(text)) },
		"n":            display.Grouped,
		"plural":       display.Plural,
		"ms":           display.Milliseconds,
		"size":         display.Size,
		"span":         display.Span,
		"minutes":      display.Minutes,
		"status":       display.StatusText,
		"allowed":      display.AttemptsAllowed,
		"tone":         display.Tone,
		"provisioning": display.Provisioning,
		"clock":        func(t time.Time) string { return t.UTC().Format(time.DateTime) },
		"userPath":     userPath,
		"apiKeyPath":   apiKeyPath,
		"add1":         func(n int) int { return n + 1 },
		"day":          func(t time.Time) string { return t.Format(time.DateOnly) },
	}
}

// parseTemplates parses all pages as one set, which shares the parts (a set for each page held 12 MB), and tries each
// page.
func (p *pages) parseTemplates() (err error) {
	if p.templates, err = template.New("pages").Funcs(p.helpers()).ParseFS(templateFiles, "templates/*.html"); err != nil {
		return fmt.Errorf("parse templates: %w", err)
	}
	for name, view := range views {
		filled := reflect.New(reflect.TypeOf(view)).Elem()
		fill(filled, 0)
		for _, sample := range []any{view, filled.Interface()} {
			f := frame{Menu: menu, View: sample, Trail: []link{{"/", "x"}}, Done: "x", Refused: "x", Live: true}
			if _, err := p.page(name, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// page is a page as text: what it shows, and then the layout around that. It is made in memory: half a page with status
// 200 cannot be taken back.
func (p *pages) page(name string, f frame) ([]byte, error) {
	var main, page bytes.Buffer
	if err := p.templates.ExecuteTemplate(&main, name+".html", f.View); err != nil {
		return nil, fmt.Errorf("render page %s: %w", name, err)
	}
	f.Main = template.HTML(main.String()) //nolint:gosec // made by html/template, a line above
	if err := p.templates.ExecuteTemplate(&page, "layout.html", f); err != nil {
		return nil, fmt.Errorf("render the layout of page %s: %w", name, err)
	}
	return page.Bytes(), nil
}

// fillDepth is deeper than any view; a type that holds itself ends there.
const fillDepth = 8

// fill puts something wherever a template may look: every pointer points, every list has a row.
func fill(v reflect.Value, depth int) {
	if depth > fillDepth || !v.CanSet() {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), depth+1)
		}
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	default:
	}
}

// render writes a page.
func (p *pages) render(c echo.Context, status int, name string, f frame) error {
	p.complete(c, name, &f)
	page, err := p.page(name, f)
	if err != nil {
		return err
	}
	return c.HTMLBlob(status, page)
}

// pageTime bounds the database's part of a page: a person gets an answer, or hears that there is none.
const pageTime = 15 * time.Second

func pageContext(c echo.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.Request().Context(), pageTime)
}
