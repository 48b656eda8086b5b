// Package site shows the pages of the dashboard in a frame with the menu, with the result of an action or the reason
// for its rejection, and handles sessions and errors.
package site

import (
	"bytes"
	"context"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/internal/access"
	"postrider/internal/query"
	"postrider/web/display"
)

// Site shows pages.
type Site struct {
	// Templates has layout.html, error.html and a template for each page.
	Templates *template.Template
	// Now is the database's time.
	Now func() time.Time
	// Log gets the errors of pages.
	Log *slog.Logger
	// Plain reports that a page must not be compressed, because it may have a secret. nil: none has.
	Plain func(c echo.Context) bool
	// Done are the results of actions, by their code in the address.
	Done map[string]string
}

// Page responds to the request for a page. Its context has a time limit.
type Page func(ctx context.Context, c echo.Context) error

// PageTime is the time limit of a page.
const PageTime = 15 * time.Second

// ReadMethods are the methods of a page. Echo does not add HEAD itself.
var ReadMethods = []string{http.MethodGet, http.MethodHead}

// Context is the context of a page.
func Context(c echo.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.Request().Context(), PageTime)
}

// Timed is the handler of a page with a time limit.
func Timed(limit time.Duration, show Page) echo.HandlerFunc {
	return func(c echo.Context) error {
		ctx, cancel := context.WithTimeout(c.Request().Context(), limit)
		defer cancel()
		return show(ctx, c)
	}
}

// Frame is what layout.html shows around a page.
type Frame struct {
	Title string
	// Tab is the title of the browser's tab: Title with the id of what the page shows.
	Tab string
	// Section is the link of the menu that the page belongs to.
	Section string
	// Here is the address of the page, with its parameters.
	Here string
	// Live reports that the page refreshes itself.
	Live bool
	// Trail leads from the section to the page.
	Trail []display.Link
	// Done is the result of the action that redirected here; "" is none.
	Done string
	// Rejected is why the action was not done; "" is no rejection.
	Rejected string
	At       time.Time
	// Role is the role of the user; "" before sign-in.
	Role access.Role
	// Queries reports whether the user may run SQL queries.
	Queries bool
	// Who is the name of the user; "" on a dashboard without sign-in.
	Who  string
	Menu []menuGroup
	View any
	// Main is View, rendered by the template of the page.
	Main template.HTML
}

// menuGroup is a part of the menu for users with a role.
type menuGroup struct {
	Name  string
	needs access.Role
	Links []display.Link
}

var menu = []menuGroup{
	{"Now", access.RoleViewer, []display.Link{
		{Href: "/ui/", Text: "Overview"},
		{Href: "/ui/problems", Text: "Problems"},
		{Href: "/ui/tail", Text: "Live tail"},
	}},
	{"Traffic", access.RoleViewer, []display.Link{
		{Href: "/ui/events", Text: "Events"},
		{Href: "/ui/deliveries", Text: "Deliveries"},
		{Href: "/ui/batches", Text: "Batches"},
		{Href: "/ui/dead-letters", Text: "Dead letters"},
		{Href: "/ui/operations", Text: "Operations"},
		{Href: queryPage, Text: "Query"},
	}},
	{"Configuration", access.RoleViewer, []display.Link{
		{Href: "/ui/topics", Text: "Topics"},
		{Href: "/ui/subscriptions", Text: "Event subscriptions"},
		{Href: "/ui/policies", Text: "Retry policies"},
	}},
	{"System", access.RoleViewer, []display.Link{
		{Href: "/ui/jobs", Text: "Jobs"},
		{Href: "/ui/storage", Text: "Storage"},
		{Href: "/ui/audit", Text: "Audit"},
		{Href: "/openapi", Text: "REST API"},
	}},
	{"Access", access.RoleAdmin, []display.Link{
		{Href: "/ui/users", Text: "Users"}, {Href: "/ui/api-keys", Text: "API keys"},
	}},
}

// queryPage is the menu link for users who may query.
const queryPage = "/ui/query"

// sectionOf is the menu link of a page.
func sectionOf(path string) string {
	if path == "/ui/new-topic" {
		return "/ui/topics"
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/ui/"), "/")
	return "/ui/" + first
}

// Show responds with a page. Only the first page of a list refreshes itself.
func (s *Site) Show(c echo.Context, name, title string, live bool, view any, trail ...display.Link) error {
	f := Frame{
		Title: title, Live: live && !c.QueryParams().Has("before") && !c.QueryParams().Has("after"), Trail: trail,
		Done: s.Done[c.QueryParam("done")], View: view,
	}
	status := http.StatusOK
	if rejection := rejectionIn(c); rejection != nil {
		status, f.Rejected = rejection.Status, rejection.Text
	}
	return s.render(c, status, name, f)
}

// Respond responds to a form with a page that does not refresh itself.
func (s *Site) Respond(c echo.Context, status int, name, title string, view any) error {
	return s.render(c, status, name, Frame{Title: title, View: view})
}

// render responds with a page in its frame.
func (s *Site) render(c echo.Context, status int, name string, f Frame) error {
	address := *c.Request().URL
	parameters := address.Query()
	parameters.Del("done") // a refresh does not repeat the result of an action
	address.RawQuery = parameters.Encode()
	if c.Request().Method == http.MethodPost { // after a rejected action the page refreshes as its own address
		address.Path, address.RawPath = path.Dir(address.Path), ""
	}
	if f.Tab = f.Title; !strings.HasSuffix(f.Title, c.Param("id")) {
		f.Tab += " " + c.Param("id")
	}
	actor := access.ActorOf(c.Request().Context())
	f.Role, f.Queries, f.Who = actor.Role, actor.Query, actor.User()
	var groups []menuGroup
	for _, group := range menu {
		if !actor.Role.Allows(group.needs) {
			continue
		}
		if !actor.Query {
			group.Links = slices.DeleteFunc(slices.Clone(group.Links),
				func(l display.Link) bool { return l.Href == queryPage })
		}
		groups = append(groups, group)
	}
	f.Menu = groups
	f.Section, f.At, f.Here = sectionOf(c.Request().URL.Path), s.Now(), address.RequestURI()
	written, err := s.Page(name, f)
	if err != nil {
		return err
	}
	return s.respond(c, status, written)
}

// Page renders a page in memory: a failing template must not send half a page with status 200.
func (s *Site) Page(name string, f Frame) ([]byte, error) {
	var main, page bytes.Buffer
	if err := s.Templates.ExecuteTemplate(&main, name+".html", f.View); err != nil {
		return nil, fmt.Errorf("render page %s: %w", name, err)
	}
	f.Main = template.HTML(main.String()) //nolint:gosec // html/template has rendered it
	if err := s.Templates.ExecuteTemplate(&page, "layout.html", f); err != nil {
		return nil, fmt.Errorf("render the layout of page %s: %w", name, err)
	}
	return page.Bytes(), nil
}

// Cell is a cell of a list: the template list/key, or cell/key, which several lists share, or the value by its type.
func (s *Site) Cell(list string, c query.Column, row any) (template.HTML, error) {
	for _, name := range []string{list + "/" + c.Key, "cell/" + c.Key} {
		if s.Templates.Lookup(name) != nil {
			return s.Part(name, row)
		}
	}
	value := reflect.ValueOf(row).FieldByIndex(c.Index)
	if value.Kind() == reflect.Pointer && value.IsNil() {
		return s.Part("none", c.None)
	}
	switch v := reflect.Indirect(value).Interface().(type) {
	case time.Time:
		return s.Part("when", display.MomentOf(v, s.Now()))
	case []string:
		return s.Part("plain", strings.Join(v, " "))
	default:
		text := fmt.Sprint(v)
		if strings.HasPrefix(c.Class, "number") && reflect.Indirect(value).CanInt() {
			text = display.Grouped(v)
		}
		if strings.HasSuffix(c.Key, "_id") {
			return s.Part("code", text)
		}
		return s.Part("plain", text)
	}
}

// Part is a template as HTML.
func (s *Site) Part(name string, view any) (template.HTML, error) {
	var part strings.Builder
	err := s.Templates.ExecuteTemplate(&part, name, view)
	return template.HTML(part.String()), err //nolint:gosec // html/template has rendered it
}

// List is what a list page shows.
type List[T any] struct {
	Noun   string // the name of a row, in the singular
	Filter *display.Filter
	Rows   []T
	Paging display.Paging
	Table  display.Table
	Here   string // the address of the page
}

// Empty reports that the list has no rows even without a filter.
func (l List[T]) Empty() bool { return len(l.Rows) == 0 && l.Paging.Further == "" && !l.Filter.Set }

// ListOf reads the page of a list that the address requests, with the rows that match the filter.
func ListOf[F, T, K any](
	ctx context.Context, c echo.Context, noun string, f *display.Filter, filter F,
	read func(context.Context, F, query.Turn[K]) (query.SearchedPage[T, K], error), key func(*T) K,
) (l List[T], err error) {
	turn := display.TurnOf[K](f)
	if f.Err != nil {
		return l, f.Err
	}
	page, err := read(ctx, filter, turn)
	paging := display.PagingOf(c, f.Oldest(), page, key)
	if f.Oldest() {
		slices.Reverse(page.Rows)
	}
	table := display.TableOf(c, strings.TrimPrefix(sectionOf(f.Path), "/ui/"), page.Rows)
	if f.Order != "" {
		other := "oldest"
		if table.Oldest = f.Oldest(); table.Oldest {
			other = ""
		}
		table.Order = display.With(c, "before", "", "after", "", "order", other)
	}
	f.Columns = table.SQL()
	return List[T]{noun, f, page.Rows, paging, table, display.With(c)}, err
}

// Selectable gives the rows check-boxes if the user is an operator. Buttons open the pages, which act on the checked
// rows.
func (l *List[T]) Selectable(c echo.Context, pages []display.Link) {
	if access.ActorOf(c.Request().Context()).Role.Allows(access.RoleOperator) {
		l.Table.Checked = pages
	}
}

// ForwardList is ListOf for a list without filter that is read forward only: limit rows after a key.
func ForwardList[T, K any](
	ctx context.Context, c echo.Context, noun string,
	read func(ctx context.Context, after K, limit int) ([]T, error), key func(*T) K,
) (List[T], error) {
	page := func(ctx context.Context, after K, t query.Turn[K]) (page query.SearchedPage[T, K], err error) {
		if t.Before != nil {
			after = *t.Before
		}
		found, err := read(ctx, after, t.Limit+1)
		page.Rows, page.Older = found[:min(len(found), t.Limit)], len(found) > t.Limit
		return page, err
	}
	var first K
	return ListOf(ctx, c, noun, display.FilterOf(c), first, page, key)
}

// ShowList responds with a list page, or with the error of reading it.
func (s *Site) ShowList(c echo.Context, name, title string, view any, err error) error {
	if err != nil {
		return err
	}
	return s.Show(c, name, title, true, view)
}
