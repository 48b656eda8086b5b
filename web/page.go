package web

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/access"
	"postrider/policy"
	"postrider/postgres"
	"postrider/query"
	"postrider/web/display"
)

//go:embed templates/*.html
var templateFiles embed.FS

// page handles the request for a page. Its context ends after pageTime.
type page func(ctx context.Context, c echo.Context) error

// pageTime bounds the database's part of a page.
const pageTime = 15 * time.Second

func pageContext(c echo.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.Request().Context(), pageTime)
}

func timed(show page) echo.HandlerFunc {
	return func(c echo.Context) error {
		ctx, cancel := pageContext(c)
		defer cancel()
		return show(ctx, c)
	}
}

// numberParam is the id in the path; ErrNotFound if it is not one.
func numberParam(c echo.Context) (int64, error) {
	id, err := strconv.ParseInt(c.Param("id"), 10, 64)
	if err != nil || id <= 0 {
		return 0, postgres.ErrNotFound
	}
	return id, nil
}

// uuidParam is the id in the path; ErrNotFound if it is not one.
func uuidParam(c echo.Context) (uuid.UUID, error) {
	id, err := uuid.Parse(c.Param("id"))
	if err != nil {
		return id, postgres.ErrNotFound
	}
	return id, nil
}

// frame is what layout.html shows around a page.
type frame struct {
	Title string
	// Section is the link of the menu that the page belongs to.
	Section string
	// Here is the page's own address, with its parameters.
	Here string
	// Live pages refresh themselves every few seconds.
	Live bool
	// Trail leads from the section to the page.
	Trail []link
	// Done is the result of the action that led here; "" = there was none.
	Done string
	// Refused is why the action was not done; "" = it was.
	Refused string
	At      time.Time
	// Role is the user's; "" = nobody has signed in.
	Role access.Role
	// Who is the user; "" on a dashboard without a login.
	Who  string
	Menu []menuGroup
	View any
	// Main is View as its page's template shows it.
	Main template.HTML
}

type link struct{ Href, Text string }

// menuGroup is a part of the menu for users with a role.
type menuGroup struct {
	Name  string
	needs access.Role
	Links []link
}

var menu = []menuGroup{
	{"Now", access.RoleViewer, []link{{"/ui/", "Overview"}, {"/ui/problems", "Problems"}, {"/ui/tail", "Live tail"}}},
	{"Traffic", access.RoleViewer, []link{
		{"/ui/events", "Events"}, {"/ui/deliveries", "Deliveries"}, {"/ui/batches", "Batches"},
		{"/ui/dead-letters", "Dead letters"}, {"/ui/operations", "Operations"},
	}},
	{"Configuration", access.RoleViewer, []link{
		{"/ui/topics", "Topics"}, {"/ui/subscriptions", "Event subscriptions"}, {"/ui/policies", "Retry policies"},
	}},
	{"System", access.RoleViewer, []link{
		{"/ui/jobs", "Jobs"}, {"/ui/storage", "Storage"}, {"/ui/audit", "Audit"}, {"/openapi", "REST API"},
	}},
	{"Access", access.RoleAdmin, []link{{"/ui/users", "Users"}, {"/ui/api-keys", "API keys"}}},
}

// sectionOf is the link of the menu that a page belongs to.
func sectionOf(path string) string {
	if path == "/ui/new-topic" {
		return "/ui/topics"
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/ui/"), "/")
	return "/ui/" + first
}

// show responds with a page. A list that the user pages through does not refresh itself.
func (p *pages) show(c echo.Context, name, title string, live bool, view any, trail ...link) error {
	f := frame{
		Title: title, Live: live && !c.QueryParams().Has("before") && !c.QueryParams().Has("after"), Trail: trail,
		Done: doneText(c.QueryParam("done")), View: view,
	}
	status := http.StatusOK
	if said, ok := c.Get(refusalKey).(*refusedError); ok {
		status, f.Refused = said.status, said.text
	}
	return p.render(c, status, name, f)
}

// render writes a page with what is the same on every page.
func (p *pages) render(c echo.Context, status int, name string, f frame) error {
	address := *c.Request().URL
	parameters := address.Query()
	parameters.Del("done") // a refreshed page does not repeat the result of an action
	address.RawQuery = parameters.Encode()
	if c.Request().Method == http.MethodPost { // a page that shows why an action was not done refreshes itself
		address.Path, address.RawPath = path.Dir(address.Path), ""
	}
	f.Role = access.ActorOf(c.Request().Context()).Role
	if session := sessionIn(c); session != nil {
		f.Who = session.User
	}
	for _, group := range menu {
		if f.Role.Allows(group.needs) {
			f.Menu = append(f.Menu, group)
		}
	}
	f.Section, f.At, f.Here = sectionOf(c.Request().URL.Path), p.now(), address.RequestURI()
	written, err := p.page(name, f)
	if err != nil {
		return err
	}
	return c.HTMLBlob(status, written)
}

// page writes a page in memory: a template that fails must not leave half a page with status 200.
func (p *pages) page(name string, f frame) ([]byte, error) {
	var main, page bytes.Buffer
	if err := p.templates.ExecuteTemplate(&main, name+".html", f.View); err != nil {
		return nil, fmt.Errorf("render page %s: %w", name, err)
	}
	f.Main = template.HTML(main.String()) //nolint:gosec // written by html/template, a line above
	if err := p.templates.ExecuteTemplate(&page, "layout.html", f); err != nil {
		return nil, fmt.Errorf("render the layout of page %s: %w", name, err)
	}
	return page.Bytes(), nil
}

// helpers are the functions of the templates.
func (p *pages) helpers() template.FuncMap {
	return template.FuncMap{
		"asset":            func(file string) string { return p.files[file].path },
		"moment":           func(t time.Time) display.Moment { return display.MomentOf(t, p.now()) },
		"age":              func(t time.Time) string { return display.Span(max(0, p.now().Sub(t))) },
		"left":             func(t time.Time) string { return display.Span(max(0, t.Sub(p.now()))) },
		"text":             display.Visible,
		"pretty":           func(text string) string { return display.Pretty(display.Visible(text)) },
		"n":                display.Grouped,
		"atMost":           display.AtMost,
		"plural":           display.Plural,
		"percent":          display.Percent,
		"succeeded":        func(all, failed int64) string { return display.Percent(all-failed, all) },
		"width":            func(part, whole int64) int { return int(100 * part / max(1, whole)) },
		"perSecond":        display.PerSecond,
		"ms":               display.Milliseconds,
		"seconds":          func(seconds float64) string { return display.Milliseconds(1000 * seconds) },
		"size":             display.Size,
		"span":             display.Span,
		"minutes":          display.Minutes,
		"status":           display.StatusText,
		"met":              display.Met,
		"sentence":         func(reason string) string { return policy.Reason(reason).Sentence() },
		"allowed":          display.AttemptsAllowed,
		"tone":             display.Tone,
		"provisioning":     display.Provisioning,
		"spark":            display.SparkOf,
		"longest":          longest,
		"phases":           display.PhasesOf,
		"waited":           waited,
		"verdict":          verdictText,
		"progress":         func(o query.Operation) progress { return progressOf(o, p.now()) },
		"operationKind":    func(kind string) string { return operationKinds[kind] },
		"yes":              yes,
		"shell":            display.QuoteShell,
		"clock":            func(t time.Time) string { return t.UTC().Format(time.DateTime) },
		"rfc3339":          func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
		"day":              func(t time.Time) string { return t.Format(time.DateOnly) },
		"subscriptionPath": subscriptionPath,
		"userPath":         userPath,
		"apiKeyPath":       apiKeyPath,
		"add1":             func(n int) int { return n + 1 },
	}
}
