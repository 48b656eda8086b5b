package site

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"postrider/access"
	"postrider/catalog"
	"postrider/postgres"
	"postrider/web/display"
)

// Action is what the button of a page does. It returns the address to continue at; "" is the page of the action.
type Action func(ctx context.Context, c echo.Context) (href string, err error)

// Act does it as the user who has signed in. If it is rejected, the page of the action shows why.
func Act(do Action, show Page) echo.HandlerFunc {
	return Timed(func(ctx context.Context, c echo.Context) error {
		href, err := do(ctx, c)
		switch rejection := RejectionOf(err); {
		case rejection != nil:
			Reject(c, rejection)
			return show(ctx, c)
		case err != nil:
			return err
		case href == "":
			return show(ctx, c)
		default:
			return c.Redirect(http.StatusSeeOther, href)
		}
	})
}

// RejectionError is why a page was not shown or an action was not done, in words for the user.
type RejectionError struct {
	Status int
	Text   string
}

// Error is the text that the user reads.
func (r *RejectionError) Error() string { return r.Text }

// HTTPStatus is the status of the response.
func (r *RejectionError) HTTPStatus() int { return r.Status }

// rejectionKey is where the rejection of an action is stored for the page that shows it.
const rejectionKey = "postrider.rejection"

// Reject stores why an action was not done, for the page that is shown instead.
func Reject(c echo.Context, rejection *RejectionError) { c.Set(rejectionKey, rejection) }

func rejectionIn(c echo.Context) *RejectionError {
	rejection, _ := c.Get(rejectionKey).(*RejectionError)
	return rejection
}

// Typed is the form of an action that was rejected: the page keeps it.
func Typed(c echo.Context) url.Values {
	if rejectionIn(c) == nil {
		return nil
	}
	return c.Request().PostForm
}

// WrongForm rejects a value of a form.
func WrongForm(text string) error {
	return &RejectionError{http.StatusBadRequest, "Nothing was done: " + text}
}

// RejectionOf is the rejection that an error is. It is nil for errors of the server, and for what does not exist.
func RejectionOf(err error) *RejectionError {
	var own *RejectionError
	var locked *access.LockedError
	var said *postgres.FunctionError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own):
		return own
	case errors.As(err, &locked):
		return &RejectionError{
			http.StatusTooManyRequests, "Too many wrong passwords. Try again in " + display.Count(locked.Wait) + ".",
		}
	case errors.Is(err, access.ErrNotFirst):
		return &RejectionError{http.StatusConflict, "There is an admin already: sign in, or let an admin add you."}
	case errors.Is(err, access.ErrLastAdmin):
		return &RejectionError{
			http.StatusConflict, "Nothing was done: this is the last admin who can sign in. Add another one first.",
		}
	case errors.Is(err, access.ErrWrongCredentials):
		return &RejectionError{http.StatusForbidden, "Nothing was done: this is not your password."}
	case errors.Is(err, postgres.ErrNotFound):
		return nil
	case errors.As(err, &said):
		text := "Nothing was done: " + said.Message + ". " + advice(said)
		return &RejectionError{StatusOf(err), strings.TrimSpace(text)}
	}
	for _, conflict := range []error{postgres.ErrPaused, postgres.ErrNotValidated, catalog.ErrNoProbation} {
		if errors.Is(err, conflict) {
			return &RejectionError{http.StatusConflict, "Nothing was done: " + conflict.Error() + "."}
		}
	}
	return nil
}

// pageWords are what to do about a rejection with the means of a page; the hints of the functions are SQL.
var pageWords = []struct{ hint, advice string }{
	{"again => true", "Tick “again” to redeliver it once more."},
	{"postrider.purge()", "It has nothing left that could be delivered; Purge removes the rest."},
	{"as subscription", "Name another event subscription."},
	{"postrider.resume(", "Resume the event subscription first."},
	{"postrider.release(", "End the probation of the event subscription first."},
	{"postrider.handshakes", "Its endpoint must be validated first."},
	{"Wait for its outcome", "Wait for its outcome."},
	{"postrider.dead_letters has", "Its dead letter can be redelivered."},
	{"postrider.event_subscriptions lists", "The menu has the list of event subscriptions."},
	{"postrider.cancel() ends", "Cancel ends it."},
}

func advice(said *postgres.FunctionError) string {
	for _, w := range pageWords {
		if strings.Contains(said.Hint, w.hint) {
			return w.advice
		}
	}
	return ""
}
