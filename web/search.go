package web

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"postrider/internal/query"
	"postrider/web/display"
)

type searchView struct {
	Text  string
	Found []query.Found
}

// search finds pages by an id or a name. A single exact match opens its page.
func (p *pages) search(ctx context.Context, c echo.Context) error {
	f := display.FilterOf(c)
	view := searchView{Text: f.Name("", "q", "")}
	if f.Err != nil {
		return f.Err
	}
	if view.Text != "" {
		found, err := p.Parts.Reader.Find(ctx, view.Text)
		if err != nil {
			return err
		}
		if len(found) == 1 || len(found) > 1 && found[0].Exact && !found[1].Exact {
			return c.Redirect(http.StatusSeeOther, foundPath(&found[0]))
		}
		view.Found = found
	}
	return p.Show(c, "search", "Find", false, view)
}

// foundPath is the page of what was found.
func foundPath(f *query.Found) string {
	switch f.Kind {
	case "topic":
		return "/ui/topics/" + f.ID
	case "event subscription":
		return subscriptionPath(*f.Topic, f.ID)
	case "delivery":
		return "/ui/deliveries/" + f.ID
	case "batch":
		return "/ui/batches/" + f.ID
	case "event":
		return "/ui/events/" + f.ID
	case "dead letter":
		return "/ui/dead-letters/" + f.ID
	default:
		return "/ui/operations/" + f.ID
	}
}
