package web

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/labstack/echo/v4"

	"postrider/store"
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
		if status >= http.StatusInternalServerError && c.Request().Context().Err() == nil {
			p.log.ErrorContext(c.Request().Context(), "a page of the dashboard failed", "path", c.Path(), "status", status, "error", err)
		}
		return p.render(c, status, "error", errorViewOf(status))
	}
}

// statusOf is the only place where the dashboard's errors become status codes.
func statusOf(err error) int {
	var answer *echo.HTTPError
	switch {
	case errors.As(err, &answer):
		return answer.Code
	case errors.Is(err, errCursor):
		return http.StatusBadRequest
	case isOutage(err):
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

// isOutage reports an error that passes by itself: the database is away, starts, or took longer than pageTime.
func isOutage(err error) bool {
	var network net.Error
	return errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network)
}

func errorViewOf(status int) errorView {
	view := errorView{Status: status, Title: http.StatusText(status)}
	switch status {
	case http.StatusBadRequest:
		view.Title, view.Detail = "That is not a place in the list", "The address names a place that no page of this dashboard made. Start again from the newest."
	case http.StatusUnauthorized:
		view.Title, view.Detail = "Log in with the admin token", "Reload this page and enter the admin token as the password; any user name will do. The token is POSTRIDER_ADMIN_TOKEN, or the one that was printed once when the server first started."
	case http.StatusNotFound:
		view.Title, view.Detail = "There is no such page", "The pages of this dashboard are linked above."
	case http.StatusMethodNotAllowed:
		view.Title, view.Detail = "The dashboard only reads", "Its pages answer GET and HEAD. To change something, use the REST API or the postrider command."
	case http.StatusMisdirectedRequest:
		view.Title, view.Detail = "Ask for localhost", "This dashboard runs without a login, so it answers only under localhost or an IP address."
	case http.StatusServiceUnavailable:
		view.Title, view.Detail = "The database does not answer", "Nothing that was accepted is lost: it waits in PostgreSQL. Reload this page in a moment."
	case http.StatusInternalServerError:
		view.Title, view.Detail = "This page could not be made", "The cause is in the server's log."
	}
	return view
}
