package site

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/labstack/echo/v4"

	"postrider/catalog"
	"postrider/postgres"
	"postrider/web/display"
)

// ErrorView is what error.html shows. It has no text of an error: that may hold addresses, names and SQL.
type ErrorView struct {
	Status        int
	Title, Detail string
}

// Explain turns an error of a page into a page, and logs the server's own errors.
func (s *Site) Explain(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		err := next(c)
		if err == nil || c.Response().Committed {
			return err
		}
		status := StatusOf(err)
		s.logFailure(c, status, err)
		view := errorViewOf(status, err)
		return s.render(c, status, "error", Frame{Title: view.Title, View: view})
	}
}

// logFailure logs why a page failed, unless the browser has disconnected. A page that took too long is a warning: its
// user can choose a filter that reads less.
func (s *Site) logFailure(c echo.Context, status int, err error) {
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
	s.Log.Log(ctx, level, "a page of the dashboard failed", args...)
}

// StatusOf is the status code for an error.
func StatusOf(err error) int {
	var answer *echo.HTTPError
	var own interface{ HTTPStatus() int }
	switch {
	case errors.As(err, &own):
		return own.HTTPStatus()
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

func errorViewOf(status int, err error) ErrorView {
	view := ErrorView{Status: status, Title: http.StatusText(status)}
	if text, ok := errorTexts[status]; ok {
		view.Title, view.Detail = text.Title, text.Detail
	}
	var rejection *RejectionError
	if errors.As(err, &rejection) {
		view.Detail = rejection.Text
	}
	if errors.Is(err, postgres.ErrNotFound) {
		view.Title, view.Detail = "It does not exist", "It never existed, or it was deleted at the end of its retention."
	}
	return view
}

var errorTexts = map[int]ErrorView{
	http.StatusBadRequest: {
		Title: "This page has no such filter", Detail: "The address has a parameter that the page cannot use. Start again " +
			"from the menu.",
	},
	http.StatusUnauthorized: {Title: "Sign in first", Detail: "Your session has ended. Nothing was changed."},
	http.StatusForbidden: {
		Title: "Not allowed", Detail: "Another site sent this form: it does not come from a page of this dashboard. " +
			"Nothing was changed.",
	},
	http.StatusNotFound:         {Title: "There is no such page", Detail: "The menu has the pages of this dashboard."},
	http.StatusMethodNotAllowed: {Title: "This page accepts no changes", Detail: "Nothing was changed."},
	http.StatusUnsupportedMediaType: {
		Title: "This is not a form of the dashboard", Detail: "Its forms are sent as application/x-www-form-urlencoded. " +
			"Nothing was changed.",
	},
	http.StatusRequestEntityTooLarge: {
		Title: "The form is too large", Detail: "No form of this dashboard is so large. Nothing was changed.",
	},
	http.StatusConflict: {Title: "It has changed meanwhile", Detail: "Nothing was done. Go back and check again."},
	http.StatusMisdirectedRequest: {
		Title: "Use localhost", Detail: "This dashboard runs without a login: use localhost or an IP address as its host.",
	},
	http.StatusServiceUnavailable: {
		Title: "The database does not answer", Detail: "No accepted event is lost. Reload this page in a moment.",
	},
	http.StatusGatewayTimeout: {
		Title: "The query took too long", Detail: "PostgreSQL stopped it after five seconds. Filter by an event " +
			"subscription, an event or a shorter time, or query with SQL, which has no such limit.",
	},
	http.StatusInternalServerError: {Title: "This page could not be made", Detail: "The server's log has the cause."},
}
