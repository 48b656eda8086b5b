package web

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/access"
	"postrider/operator"
	"postrider/web/display"
	"postrider/web/site"
	"postrider/web/workbench"
)

// selectTime is the time limit of creating a selection: up to a million rows are searched and stored.
const selectTime = time.Minute

// mountSelect adds the forms of the lists whose rows can be selected.
func (p *pages) mountSelect(ui *echo.Group, login echo.MiddlewareFunc) {
	operates := site.Requires(access.RoleOperator)
	for path, list := range map[string]struct {
		page   site.Page
		choose func(context.Context, echo.Context) (*operator.Selection, error)
	}{
		"/dead-letters": {p.deadLetters, p.selectDeadLetters}, "/deliveries": {p.deliveries, p.selectDeliveries},
	} {
		act := site.Timed(selectTime, func(ctx context.Context, c echo.Context) error {
			// an error means that the response has no limit of its own
			_ = http.NewResponseController(c.Response()).SetWriteDeadline(time.Now().Add(selectTime + site.PageTime))
			s, err := list.choose(ctx, c)
			href := ""
			if err == nil {
				href = workbench.SelectionPath(s)
			}
			return site.Finish(c, href, err, func() error { return list.page(ctx, c) })
		})
		ui.POST(path+"/select", act, sameOrigin(), login, operates)
		ui.Match(readMethods, path+"/select", func(c echo.Context) error { // reload of a rejection, and its links
			to := *c.Request().URL
			to.Path = strings.TrimSuffix(to.Path, "/select")
			return c.Redirect(http.StatusSeeOther, to.RequestURI())
		}, login, site.Requires(access.RoleViewer))
	}
}

// selectDeadLetters selects the checked dead letters, or all that match.
func (p *pages) selectDeadLetters(ctx context.Context, c echo.Context) (*operator.Selection, error) {
	if c.FormValue("which") != "all" {
		return workbench.Checked(ctx, c, p.Parts.Operator, operator.SelectedDeadLetters)
	}
	filter, err := p.manyFilter(c)
	if err != nil {
		return nil, err
	}
	return p.Parts.Operator.SelectFilter(ctx, &filter)
}

// selectDeliveries selects the checked deliveries, or all that match.
func (p *pages) selectDeliveries(ctx context.Context, c echo.Context) (*operator.Selection, error) {
	if c.FormValue("which") != "all" {
		return workbench.Checked(ctx, c, p.Parts.Operator, operator.SelectedDeliveries)
	}
	f := display.FilterOf(c)
	filter := p.deliveryFilter(c, f)
	if f.Err != nil {
		return nil, f.Err
	}
	return p.Parts.Operator.SelectDeliveryFilter(ctx, p.Parts.Reader, filter)
}
