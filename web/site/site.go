// Package site shows the pages of the dashboard: each in a frame with the menu, refreshed or not, with the result of an
// action or with the reason why it was rejected.
package site

import (
	"bytes"
	"context"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/access"
)

// Site shows pages.
type Site struct {
	// Templates has layout.html, error.html and a template for each page.
	Templates *template.Template
	// Now is the database's time.
	Now func() time.Time
	// Log gets the errors of pages.
	Log *slog.Logger
	// Done says what an action has done, by its code in the address; "" for unknown codes.
	Done func(code string) string
}

// Page responds to the request for a page. Its context ends after pageTime.
type Page func(ctx context.Context, c echo.Context) error

// pageTime bounds the database's part of a page.
const pageTime = 15 * time.Second

// Context is the context of a page.
func Context(c echo.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.Request().Context(), pageTime)
}

// Timed is the handler of a page.
func Timed(show Page) echo.HandlerFunc {
	return func(c echo.Context) error {
		ctx, cancel := Context(c)
		defer cancel()
		return show(ctx, c)
	}
}

// Frame is what layout.html shows around a page.
type Frame struct {
	Title string
	// Section is the link of the menu that the page belongs to.
	Section string
	// Here is the page's own address, with its parameters.
	Here string
	// Live pages refresh themselves every few seconds.
	Live bool
	// Trail leads from the section to the page.
	Trail []Link
	// Done is the result of the action that led here; "" = there was none.
	Done string
	// Rejected is why the action was not done; "" = it was.
	Rejected string
	At       time.Time
	// Role is the user's; "" = nobody has signed in.
	Role access.Role
	// Who is the user; "" on a dashboard without a login.
	Who  string
	Menu []menuGroup
	View any
	// Main is View as its page's template shows it.
	Main template.HTML
}

// Link is a link to another page.
type Link struct{ Href, Text string }

// menuGroup is a part of the menu for users with a role.
type menuGroup struct {
	Name  string
	needs access.Role
	Links []Link
}

var menu = []menuGroup{
	{"Now", access.RoleViewer, []Link{{"/ui/", "Overview"}, {"/ui/problems", "Problems"}, {"/ui/tail", "Live tail"}}},
	{"Traffic", access.RoleViewer, []Link{
		{"/ui/events", "Events"},
		{"/ui/deliveries", "Deliveries"},
		{"/ui/batches", "Batches"},
		{"/ui/dead-letters", "Dead letters"},
		{"/ui/operations", "Operations"},
	}},
	{"Configuration", access.RoleViewer, []Link{
		{"/ui/topics", "Topics"}, {"/ui/subscriptions", "Event subscriptions"}, {"/ui/policies", "Retry policies"},
	}},
	{"System", access.RoleViewer, []Link{
		{"/ui/jobs", "Jobs"}, {"/ui/storage", "Storage"}, {"/ui/audit", "Audit"}, {"/openapi", "REST API"},
	}},
	{"Access", access.RoleAdmin, []Link{{"/ui/users", "Users"}, {"/ui/api-keys", "API keys"}}},
}

// sectionOf is the link of the menu that a page belongs to.
func sectionOf(path string) string {
	if path == "/ui/new-topic" {
		return "/ui/topics"
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/ui/"), "/")
	return "/ui/" + first
}

// Show responds with a page. A list that the user pages through does not refresh itself.
func (s *Site) Show(c echo.Context, name, title string, live bool, view any, trail ...Link) error {
	f := Frame{
		Title: title, Live: live && !c.QueryParams().Has("before") && !c.QueryParams().Has("after"), Trail: trail,
		Done: s.Done(c.QueryParam("done")), View: view,
	}
	status := http.StatusOK
	if rejection := rejectionIn(c); rejection != nil {
		status, f.Rejected = rejection.Status, rejection.Text
	}
	return s.render(c, status, name, f)
}

// render writes a page with what is the same on every page.
func (s *Site) render(c echo.Context, status int, name string, f Frame) error {
	address := *c.Request().URL
	parameters := address.Query()
	parameters.Del("done") // a refreshed page does not repeat the result of an action
	address.RawQuery = parameters.Encode()
	if c.Request().Method == http.MethodPost { // a page that shows why an action was not done refreshes itself
		address.Path, address.RawPath = path.Dir(address.Path), ""
	}
	actor := access.ActorOf(c.Request().Context())
	f.Role, f.Who = actor.Role, actor.User()
	for _, group := range menu {
		if f.Role.Allows(group.needs) {
			f.Menu = append(f.Menu, group)
		}
	}
	f.Section, f.At, f.Here = sectionOf(c.Request().URL.Path), s.Now(), address.RequestURI()
	written, err := s.Page(name, f)
	if err != nil {
		return err
	}
	return c.HTMLBlob(status, written)
}

// Page writes a page in memory: a template that fails must not leave half a page with status 200.
func (s *Site) Page(name string, f Frame) ([]byte, error) {
	var main, page bytes.Buffer
	if err := s.Templates.ExecuteTemplate(&main, name+".html", f.View); err != nil {
		return nil, fmt.Errorf("render page %s: %w", name, err)
	}
	f.Main = template.HTML(main.String()) //nolint:gosec // written by html/template, a line above
	if err := s.Templates.ExecuteTemplate(&page, "layout.html", f); err != nil {
		return nil, fmt.Errorf("render the layout of page %s: %w", name, err)
	}
	return page.Bytes(), nil
}
