package workbench

import (
	"context"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"postrider/internal/sqlquery"
	"postrider/web/site"
)

// openTemporary stores the SQL of a list for a day and opens it in the editor. SQL itself is never in an address.
func (p *Pages) openTemporary(ctx context.Context, c echo.Context) (href string, err error) {
	name, err := p.SavedQueries.OpenTemporary(ctx, c.FormValue("sql"))
	if m, status := mistakeOf(err, ""); m != nil {
		return "", site.Rejected(status, m.Title)
	}
	return "/ui/query?temporary=" + url.QueryEscape(name), err
}

// save stores the SQL of the editor under a name.
func (p *Pages) save(ctx context.Context, c echo.Context) (href string, err error) {
	values := c.Request().PostForm
	sql, _ := inputOf(values)
	name := strings.TrimSpace(values.Get("name"))
	_, err = p.SavedQueries.Put(ctx, sqlquery.Saved{
		Name: name, Description: strings.TrimSpace(values.Get("description")), SQL: sql, Shared: values.Get("shared") != "",
	})
	return "/ui/query?saved=" + url.QueryEscape(name) + "&done=query-saved", err
}

// remove deletes a saved query.
func (p *Pages) remove(ctx context.Context, c echo.Context) (href string, err error) {
	return "/ui/query?done=query-deleted", p.SavedQueries.Delete(ctx, c.FormValue("open"))
}
