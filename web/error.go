package web

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/labstack/echo/v4"

	"postrider/catalog"
	"postrider/postgres"
	"postrider/web/display"
)

// errorView is what error.html shows. Its texts are all ours: an error's own text may hold addresses, names and SQL.
type errorView struct {
	Status        int
	Title, Detail string
}

// explain turns an error of a page into a page. It logs those that are the server's.
func (p *pages) explain(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		err := next(c)
		if err == nil || c.Response().Committed {
			return err
		}
		status := statusOf(err)
		p.logFailure(c, status, err)
		view := errorViewOf(status, err)
		return p.render(c, status, "error", frame{Title: view.Title, View: view})
	}
}

// logFailure logs why a page failed, unless the browser has gone. A page that took too long is a warning: less would be
// read in time.
func (p *pages) logFailure(c echo.Context, status int, err error) {
	ctx := c.Request().Context()
	if status < http.StatusInternalServerError || ctx.Err() != nil {
		return
	}
	args := []any{"path", c.Path(), "status", status, "error", err}
	if state := postgres.SQLState(err); state != "" {
		args = append(args, "sqlstate", state)
	}
	level := slog.LevelError
	if status == http.StatusGatewayTimeout {
		level = slog.LevelWarn
	}
	p.log.Log(ctx, level, "a page of the dashboard failed", args...)
}

// statusOf is the only place where the dashboard's errors become status codes.
func statusOf(err error) int {
	var answer *echo.HTTPError
	var role *roleError
	switch {
	case errors.As(err, &role):
		return http.StatusForbidden
	case errors.As(err, &answer):
		return answer.Code
	case errors.Is(err, display.ErrQuery), errors.Is(err, postgres.ErrInvalid):
		return http.StatusBadRequest
	case errors.Is(err, postgres.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, postgres.ErrPaused), errors.Is(err, catalog.ErrNoProbation),
		errors.Is(err, postgres.ErrNotValidated), errors.Is(err, postgres.ErrConflict):
		return http.StatusConflict
	case errors.Is(err, postgres.ErrTooSlow):
		return http.StatusGatewayTimeout
	case errors.Is(err, postgres.ErrUnavailable), postgres.IsOutage(err):
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

func errorViewOf(status int, err error) errorView {
	view := errorView{Status: status, Title: http.StatusText(status)}
	if text, ok := errorTexts[status]; ok {
		view.Title, view.Detail = text.Title, text.Detail
	}
	var role *roleError
	switch {
	case errors.As(err, &role):
		view.Title, view.Detail = "You may not do that", "It needs the role "+string(role.needed)+", and yours is "+
			string(role.has)+". Nothing was changed. An admin can give you the role under Users."
	case errors.Is(err, postgres.ErrNotFound):
		view.Title, view.Detail = "It is not there",
			"What the address names does not exist, or no longer: what is over is kept for as long as the retention says."
	case errors.Is(err, postgres.ErrPaused):
		view.Detail = "The event subscription is paused. Resume it first."
	case errors.Is(err, postgres.ErrNotValidated):
		view.Detail = "The endpoint has not been validated yet."
	case errors.Is(err, catalog.ErrNoProbation):
		view.Detail = "The event subscription is not on probation any more."
	}
	return view
}

var errorTexts = map[int]errorView{
	http.StatusBadRequest: {Title: "That is not a filter of this page", Detail: "The address asks for " +
		"something that no page of this dashboard asks for. Start again from the menu."},
	http.StatusUnauthorized: {
		Title: "Sign in first", Detail: "Your session is over, or there was none. Nothing was changed.",
	},
	http.StatusForbidden: {Title: "Another site sent this form", Detail: "The browser says that it does not " +
		"come from a page of this dashboard. Nothing was changed."},
	http.StatusNotFound: {
		Title: "There is no such page", Detail: "The pages of this dashboard are in the menu.",
	},
	http.StatusMethodNotAllowed: {
		Title: "This page only reads", Detail: "Nothing was changed. What can be changed has a form of its own.",
	},
	http.StatusUnsupportedMediaType: {Title: "That is not one of our forms", Detail: "Forms of this dashboard are sent " +
		"as application/x-www-form-urlencoded. Nothing was changed."},
	http.StatusRequestEntityTooLarge: {
		Title: "That is too much", Detail: "No form of this dashboard is so large. Nothing was changed.",
	},
	http.StatusConflict: {
		Title: "Things have changed meanwhile", Detail: "Nothing was done. Go back and look again.",
	},
	http.StatusMisdirectedRequest: {Title: "Ask for localhost", Detail: "This dashboard runs without a login, so it " +
		"answers only under localhost or an IP address."},
	http.StatusServiceUnavailable: {Title: "The database does not answer", Detail: "Nothing that was accepted is lost: " +
		"it waits in PostgreSQL. Reload this page in a moment."},
	http.StatusGatewayTimeout: {Title: "That took too long", Detail: "PostgreSQL looked for five seconds and was " +
		"stopped. Name an event subscription, an event or a shorter time, or ask in SQL, where nobody stops you."},
	http.StatusInternalServerError: {Title: "This page could not be made", Detail: "The cause is in the server's log."},
}
