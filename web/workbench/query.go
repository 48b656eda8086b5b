package workbench

import (
	"context"

	"github.com/labstack/echo/v4"

	"postrider/docs"
	"postrider/postgres"
)

type queryView struct {
	SQL       string
	Questions []docs.Question
}

// query is the page of the query editor. Its address opens a documented question but runs nothing.
func (p *Pages) query(_ context.Context, c echo.Context) error {
	view := queryView{Questions: docs.Questions()}
	if name := c.QueryParam("question"); name != "" {
		question, ok := docs.Find(name)
		if !ok {
			return postgres.ErrNotFound
		}
		view.SQL = question.With(map[string]string{
			"topic": c.QueryParam("topic"), "subscription": c.QueryParam("subscription"), "event-id": c.QueryParam("event-id"),
		})
	}
	return p.Site.Show(c, "query", "Query", false, view)
}
