package site

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"postrider/internal/access"
	"postrider/internal/catalog"
	"postrider/internal/postgres"
	"postrider/web/display"
)

// ErrorView is what error.html shows. It has no text of an error, which may hold addresses, names and SQL.
type ErrorView struct {
	Status        int
	Title, Detail string
}

// Explain turns an error of a page into an error page and logs the server's own errors.
func (s *Site) Explain(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		err := next(c)
		if err == nil || c.Response().Committed {
			return err
		}
		status := statusOf(err)
		s.logFailure(c, status, err)
		view := errorViewOf(status, err)
		return s.render(c, status, "error", Frame{Title: view.Title, View: view})
	}
}

// logFailure logs why a page failed, unless the browser has disconnected. A page that takes too long is a warning: a
// narrower filter avoids it.
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
	s.Log.Log(ctx, level, "dashboard page failed", args...)
}

// statusOf is the status code for an error.
func statusOf(err error) int {
	var ofEcho *echo.HTTPError
	var own interface{ HTTPStatus() int }
	var busy *postgres.BusyError
	switch {
	case errors.As(err, &busy) && busy.Own:
		return http.StatusTooManyRequests
	case errors.As(err, &busy):
		return http.StatusServiceUnavailable
	case errors.As(err, &own):
		return own.HTTPStatus()
	case errors.As(err, &ofEcho):
		return ofEcho.Code
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
		view.Title, view.Detail = text[0], text[1]
	}
	if rejection, ok := errors.AsType[*RejectionError](err); ok {
		view.Detail = rejection.Text
	}
	if errors.Is(err, display.ErrQuery) {
		view.Detail = Sentence(err.Error())
	}
	if invalid, ok := errors.AsType[*postgres.FunctionError](err); ok && status == http.StatusBadRequest {
		view.Detail = Sentence(invalid.Message)
	}
	if busy, ok := errors.AsType[*postgres.BusyError](err); ok {
		view.Title, view.Detail = "Too many searches", Sentence(busy.Error())
	}
	if errors.Is(err, postgres.ErrNotFound) {
		view.Title, view.Detail = "Not found", "It does not exist, or it was deleted at the end of its retention."
	}
	return view
}

// Sentence writes a message as a sentence; it must not be empty.
func Sentence(message string) string { return strings.ToUpper(message[:1]) + message[1:] + "." }

// errorTexts are the titles and texts of error pages.
var errorTexts = map[int][2]string{
	http.StatusBadRequest: {
		"Invalid request", "A parameter of the address is invalid. Choose a page from the menu.",
	},
	http.StatusUnauthorized: {"Sign-in required", "Your session has ended. Nothing was changed."},
	http.StatusForbidden: {
		"Not allowed", "The form was not sent by a page of this dashboard. Nothing was changed.",
	},
	http.StatusNotFound:         {"Page not found", "Choose a page from the menu."},
	http.StatusMethodNotAllowed: {"Method not allowed", "Nothing was changed."},
	http.StatusUnsupportedMediaType: {
		"Unsupported media type", "Send forms as application/x-www-form-urlencoded. Nothing was changed.",
	},
	http.StatusRequestEntityTooLarge: {"Form too large", "Nothing was changed."},
	http.StatusConflict:              {"Changed meanwhile", "Nothing was done. Reload the page and try again."},
	http.StatusMisdirectedRequest: {
		"Invalid host", "This dashboard runs without sign-in. Open it as localhost or by an IP address.",
	},
	http.StatusServiceUnavailable: {"Database unavailable", "Accepted events are safe. Reload this page in a moment."},
	http.StatusGatewayTimeout: {"Query timeout", "PostgreSQL canceled the query after 5 s. Filter by event " +
		"subscription, event or a shorter time, or query with SQL, which has no such limit."},
	http.StatusInternalServerError: {"Internal error", "The server's log has the cause."},
}

// Action is what a button does. It returns the address to redirect to; "" shows the page of the action.
type Action func(ctx context.Context, c echo.Context) (href string, err error)

// Act handles an action. If the action is rejected, its page shows why.
func Act(do Action, show Page) echo.HandlerFunc {
	return Timed(PageTime, func(ctx context.Context, c echo.Context) error {
		href, err := do(ctx, c)
		return Finish(c, href, err, func() error { return show(ctx, c) })
	})
}

// Finish redirects to href, or shows a page if href is "" or err is a rejection, which the page shows.
func Finish(c echo.Context, href string, err error, show func() error) error {
	switch rejection := RejectionOf(err); {
	case rejection != nil:
		c.Set(rejectionKey, rejection)
	case err != nil:
		return err
	case href != "":
		return c.Redirect(http.StatusSeeOther, href)
	}
	return show()
}

// RejectionError is why a page is not shown or an action was not done, in words for the user.
type RejectionError struct {
	Status int
	Text   string
}

// Error is the text that the user reads.
func (r *RejectionError) Error() string { return r.Text }

// HTTPStatus is the status of the response.
func (r *RejectionError) HTTPStatus() int { return r.Status }

// rejectionKey is the key of a rejection in the context of a request.
const rejectionKey = "postrider.rejection"

func rejectionIn(c echo.Context) *RejectionError {
	rejection, _ := c.Get(rejectionKey).(*RejectionError)
	return rejection
}

// Input is what the user entered in a rejected form, for the page to keep.
func Input(c echo.Context) url.Values {
	if rejectionIn(c) == nil {
		return nil
	}
	return c.Request().PostForm
}

// Rejected is the rejection of an action.
func Rejected(status int, reason string) error {
	return &RejectionError{status, "Nothing was done: " + reason + "."}
}

// rejections are the rejections for errors of other packages.
var rejections = []struct {
	err error
	RejectionError
}{
	{
		access.ErrNotFirst,
		RejectionError{http.StatusConflict, "An admin exists already. Sign in, or have an admin add you."},
	},
	{access.ErrLastAdmin, RejectionError{
		http.StatusConflict, "Nothing was done: this is the last enabled admin. Add another admin first.",
	}},
	{access.ErrWrongCredentials, RejectionError{http.StatusForbidden, "Nothing was done: the current password is wrong."}},
}

// RejectionOf returns the rejection for an error. It is nil for errors of the server and for missing objects.
func RejectionOf(err error) *RejectionError {
	var ofFunction *postgres.FunctionError
	if own, ok := errors.AsType[*RejectionError](err); ok {
		return own
	}
	if locked, ok := errors.AsType[*access.LockedError](err); ok {
		wait := display.Count(locked.Wait)
		return &RejectionError{http.StatusTooManyRequests, "Too many wrong passwords. Try again in " + wait + "."}
	}
	for _, r := range rejections {
		if errors.Is(err, r.err) {
			return &r.RejectionError
		}
	}
	if errors.As(err, &ofFunction) && !errors.Is(err, postgres.ErrNotFound) {
		text := "Nothing was done: " + ofFunction.Message + ". " + advice(ofFunction)
		return &RejectionError{statusOf(err), strings.TrimSpace(text)}
	}
	for _, conflict := range []error{postgres.ErrPaused, postgres.ErrNotValidated, catalog.ErrNoProbation} {
		if errors.Is(err, conflict) {
			return &RejectionError{http.StatusConflict, "Nothing was done: " + conflict.Error() + "."}
		}
	}
	return nil
}

// pageAdvice replaces the hints of SQL functions with what a user can do on a page.
var pageAdvice = []struct{ hint, advice string }{
	{"again => true", "Select “redeliver again” to redeliver it once more."},
	{"postrider.purge()", "Its event was erased. Purge deletes the rest."},
	{"as subscription", "Enter another event subscription."},
	{"postrider.resume(", "Resume the event subscription first."},
	{"postrider.release(", "End the probation of the event subscription first."},
	{"postrider.handshakes", "Validate its endpoint first."},
	{"Wait for its outcome", "Wait for its outcome."},
	{"postrider.dead_letters has", "Redeliver its dead letter instead."},
	{"postrider.event_subscriptions lists", "Event subscriptions in the menu lists all."},
	{"postrider.cancel() ends", "Use Cancel delivery to end it."},
}

func advice(err *postgres.FunctionError) string {
	for _, w := range pageAdvice {
		if strings.Contains(err.Hint, w.hint) {
			return w.advice
		}
	}
	return ""
}
