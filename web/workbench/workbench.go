// Package workbench has the dashboard's pages for work on many rows: the query editor, selections and repairs.
// Package web mounts them and renders their templates in its own set, with its helpers and parts.
package workbench

import (
	"embed"
	"net/http"

	"github.com/labstack/echo/v4"

	"postrider/access"
	"postrider/operator"
	"postrider/query"
	"postrider/sqlquery"
	"postrider/web/site"
)

// Templates are the pages of the workbench: templates/*.html.
//
//go:embed templates/*.html
var Templates embed.FS

// Parts are the dependencies of the workbench. All are required.
type Parts struct {
	Site         *site.Site
	Reader       *query.Reader
	Operator     *operator.Operator
	Queries      *sqlquery.Runner
	SavedQueries *sqlquery.Store
}

// Pages are the pages of the workbench.
type Pages struct{ Parts }

// New returns the pages of the workbench.
func New(parts Parts) *Pages { return &Pages{parts} }

// readMethods are the methods of a page. Echo does not add HEAD itself.
var readMethods = []string{http.MethodGet, http.MethodHead}

// Mount adds the routes to the dashboard's group. login requires a session; sameOrigin rejects forms of other sites.
func (p *Pages) Mount(ui *echo.Group, login, sameOrigin echo.MiddlewareFunc) {
	operates := site.Requires(access.RoleOperator)
	ui.Match(readMethods, "/query", site.Timed(site.PageTime, p.query), login, operates)
}
