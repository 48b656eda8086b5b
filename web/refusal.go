package web

import (
	"errors"
	"net/http"
	"strings"

	"postrider/postgres"
)

// refusedError is why an action was not done, in words for the person who asked for it.
type refusedError struct {
	status int
	text   string
}

// Error is what the person reads.
func (r *refusedError) Error() string { return r.text }

// refusalKey is where an action leaves its refusal for the page that shows it.
const refusalKey = "postrider.refusal"

// refusalOf is nil for what is no refusal: errors of the server's, and what does not exist and has no page.
func refusalOf(err error) *refusedError {
	var own *refusedError
	if errors.As(err, &own) {
		return own
	}
	var said *postgres.FunctionError
	if errors.Is(err, postgres.ErrNotFound) || !errors.As(err, &said) {
		return nil
	}
	return &refusedError{
		status: statusOf(err), text: strings.TrimSpace("Nothing was done: " + said.Message + ". " + advice(said)),
	}
}

// pageWords are what to do about a refusal with the means of a page; the hints of the functions are SQL.
var pageWords = []struct{ hint, advice string }{
	{"again => true", "Tick “again” to redeliver it once more."},
	{"postrider.purge()", "Nothing is left that could be delivered; Purge removes the rest."},
	{"as subscription", "Name another event subscription."},
	{"postrider.resume(", "Resume the event subscription first."},
	{"postrider.release(", "End the probation of the event subscription first."},
	{"postrider.handshakes", "Its endpoint has to be validated first."},
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

// wrongForm refuses what a form's field holds.
func wrongForm(text string) error {
	return &refusedError{status: http.StatusBadRequest, text: "Nothing was done: " + text}
}
