// Package workbench has the dashboard's pages for the query editor and for repairs of one dead letter.
// Package web mounts them and renders their templates in its own set, with its helpers and parts.
package workbench

import (
	"context"
	"embed"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/internal/access"
	"postrider/internal/operator"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/internal/sqlquery"
	"postrider/web/site"
)

// Templates are the pages of the workbench: templates/*.html.
//
//go:embed templates/*.html
var Templates embed.FS

// Parts are the dependencies of the workbench. All are required.
type Parts struct {
	Site         *site.Site
	DB           *postgres.DB
	Reader       *query.Reader
	Operator     *operator.Operator
	Queries      *sqlquery.Runner
	SavedQueries *sqlquery.Store
}

// Pages are the pages of the workbench.
type Pages struct{ Parts }

// New returns the pages of the workbench.
func New(parts Parts) *Pages { return &Pages{parts} }

// Post adds the route of a form for users with rights. The action finds its values in the request's PostForm.
type Post func(path string, action echo.HandlerFunc, rights ...echo.MiddlewareFunc)

// Mount adds the routes to the dashboard's group, those of forms with post. login requires a session.
func (p *Pages) Mount(ui *echo.Group, post Post, login echo.MiddlewareFunc) {
	queries := site.RequiresQuery
	ui.Match(site.ReadMethods, "/query", site.Timed(site.PageTime, p.query), login, queries)
	for path, action := range map[string]echo.HandlerFunc{
		"/query":        p.long(p.run),
		"/query/csv":    p.long(p.download("query.csv", "text/csv; charset=utf-8", sqlquery.NewCSV)),
		"/query/json":   p.long(p.download("query.json", echo.MIMEApplicationJSON, sqlquery.NewJSON)),
		"/query/open":   site.Act(p.openTemporary, p.query),
		"/query/save":   site.Act(p.save, p.query),
		"/query/delete": site.Act(p.remove, p.query),
	} {
		post(path, action, login, queries)
	}
	operates := site.Requires(access.RoleOperator)
	const one = "/dead-letters/:id/repair"
	ui.Match(site.ReadMethods, one, site.Timed(site.PageTime, p.repairForm), login, operates)
	post(one, site.Timed(site.PageTime, p.repairStep), login, operates)
}

// long is the handler of a page that runs a query: the time limits of page and response exceed the query's.
func (p *Pages) long(show site.Page) echo.HandlerFunc {
	limit := p.Queries.Timeout() + site.PageTime
	return site.Timed(limit, func(ctx context.Context, c echo.Context) error {
		// an error means that the response has no limit of its own
		_ = http.NewResponseController(c.Response()).SetWriteDeadline(time.Now().Add(limit + site.PageTime))
		return show(ctx, c)
	})
}
