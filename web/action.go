package web

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/access"
	"postrider/catalog"
	"postrider/postgres"
	"postrider/web/display"
)

// deed is what the button of a page does. It returns the address to continue at; "" is the page of the action.
type deed func(ctx context.Context, c echo.Context) (href string, err error)

// act does it as the user who has signed in. If it is rejected, the page of the action shows why.
func (p *pages) act(do deed, show page) echo.HandlerFunc {
	return timed(func(ctx context.Context, c echo.Context) error {
		href, err := do(ctx, c)
		switch said := refusalOf(err); {
		case said != nil:
			c.Set(refusalKey, said)
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

// actions are the buttons of pages, by the role that they need. Each is at its page's path, followed by a verb.
func (p *pages) actions() map[access.Role]map[string]echo.HandlerFunc {
	const subscription, delivery, letter = "/subscriptions/:topic/:subscription/", "/deliveries/:id/", "/dead-letters/:id/"
	holds, operator := p.parts.Holds, p.parts.Operator
	return map[access.Role]map[string]echo.HandlerFunc{
		access.RoleOperator: {
			subscription + "pause":    p.act(p.pause, p.subscription),
			subscription + "resume":   p.hold("resumed", holds.Resume),
			subscription + "release":  p.hold("released", holds.Release),
			subscription + "probe":    p.hold("probed", holds.Probe),
			delivery + "retry":        p.deliveryAction("retried", operator.RetryNow),
			delivery + "cancel":       p.deliveryAction("canceled", operator.Cancel),
			delivery + "dead-letter":  p.act(p.deadLetterNow, p.delivery),
			letter + "redeliver":      p.act(p.redeliverOne, p.deadLetter),
			letter + "purge":          p.act(p.purgeOne, p.purging),
			"/dead-letters/redeliver": p.act(p.redeliverMany, p.manyToRedeliver),
			"/dead-letters/purge":     p.act(p.purgeMany, p.manyToPurge),
			"/operations/:id/cancel":  p.act(p.cancelOperation, p.operation),
		},
		access.RoleAdmin: {
			"/users/add":            p.act(p.addUser, p.users),
			"/users/:user/change":   p.act(p.changeUser, p.users),
			"/users/:user/remove":   p.act(p.removeUser, p.users),
			"/api-keys/create":      p.act(p.createAPIKey, p.apiKeys),
			"/api-keys/:key/revoke": p.act(p.revokeAPIKey, p.apiKeys),
		},
		access.RoleViewer: {
			"/account/password":            p.own(p.changePassword, p.account),
			"/account/sign-out-everywhere": p.own(p.signOutEverywhere, p.account),
			"/account/keys/create":         p.own(p.createPersonalKey, p.account),
			"/account/keys/:key/revoke":    p.own(p.revokePersonalKey, p.account),
			"/login/approve":               p.own(p.approveLogin, p.loginPage),
			"/login/deny":                  p.own(p.denyLogin, p.loginPage),
		},
	}
}

// signInActions need no login.
func (p *pages) signInActions() map[string]echo.HandlerFunc {
	return map[string]echo.HandlerFunc{
		"/sign-in":     p.act(p.signIn, p.signInPage),
		"/first-admin": p.act(p.firstAdmin, p.signInPage),
		"/sign-out":    p.act(p.signOut, p.signInPage),
	}
}

// doneText says what an action has done.
func doneText(done string) string {
	if text, known := formDone[done]; known {
		return text
	}
	return map[string]string{
		"paused":   "Paused. Deliveries wait, and none is lost; an attempt in progress finishes.",
		"resumed":  "Resumed. The deliveries on hold are released in steps.",
		"released": "The probation has ended. The deliveries on hold are released in steps.",
		"probed":   "One delivery is sent as a probe now. If it succeeds, the probation ends.",
		"retried":  "Its next attempt is due now.",
		"canceled": "Canceled. A request in progress may still reach the endpoint; its result is not recorded.",

		"dead-lettered": "Dead-lettered. This is its dead letter.",
		"redelivered":   "Redelivered. This is the new delivery; the dead letter stays.",
		"purged":        "Purged. The dead letter is deleted.",
		"started":       "Started. It continues whether this page is open or not.",
		"stopped":       "Stopped. What was done stays done.",
		"over":          "It was over already.",

		"login-approved":   "Approved. The computer gets its key.",
		"login-denied":     "Denied. The computer gets no key.",
		"signed-out":       "Signed out.",
		"password-changed": "The password is changed. Sign in with the new one.",
		"user-added":       "Added. Give the user the password; it can be changed after signing in.",
		"user-changed":     "Changed. If the role, the password or the access changed, all sessions have ended.",
		"user-removed":     "Removed, with all sessions.",
		"sessions-ended":   "All sessions and personal keys have ended.",
		"key-revoked":      "Revoked. All nodes reject it after one second.",
	}[done]
}

func (p *pages) pause(ctx context.Context, c echo.Context) (href string, err error) {
	stop := c.FormValue("stopTimeToLive") != ""
	topic, name := c.Param("topic"), c.Param("subscription")
	_, err = p.parts.Holds.Pause(ctx, topic, name, &stop)
	return subscriptionPath(topic, name) + "?done=paused", err
}

// hold is an action that ends the hold of an event subscription, or changes it.
func (p *pages) hold(
	done string, do func(ctx context.Context, topic, name string) (*catalog.Subscription, error),
) echo.HandlerFunc {
	return p.act(func(ctx context.Context, c echo.Context) (string, error) {
		topic, name := c.Param("topic"), c.Param("subscription")
		_, err := do(ctx, topic, name)
		return subscriptionPath(topic, name) + "?done=" + done, err
	}, p.subscription)
}

// deliveryAction is an action on a delivery.
func (p *pages) deliveryAction(done string, do func(ctx context.Context, id int64) error) echo.HandlerFunc {
	return p.act(func(ctx context.Context, c echo.Context) (string, error) {
		id, err := numberParam(c)
		if err != nil {
			return "", err
		}
		return deliveryPath(id) + "?done=" + done, do(ctx, id)
	}, p.delivery)
}

func (p *pages) deadLetterNow(ctx context.Context, c echo.Context) (href string, err error) {
	id, err := numberParam(c)
	if err != nil {
		return "", err
	}
	letter, err := p.parts.Operator.DeadLetterNow(ctx, id)
	return deadLetterPath(letter) + "?done=dead-lettered", err
}

func subscriptionPath(topic, name string) string {
	return "/ui/subscriptions/" + url.PathEscape(topic) + "/" + url.PathEscape(name)
}

func deliveryPath(id int64) string { return "/ui/deliveries/" + display.IDText(id) }

func deadLetterPath(id uuid.UUID) string { return "/ui/dead-letters/" + id.String() }

// sameOrigin rejects a form of another site's page, with which the browser would send the session. Browsers send where
// a request comes from (Sec-Fetch-Site, Origin); a client that sends neither is no browser.
func sameOrigin() echo.MiddlewareFunc {
	protection := http.NewCrossOriginProtection()
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if err := protection.Check(c.Request()); err != nil {
				return echo.NewHTTPError(http.StatusForbidden)
			}
			return next(c)
		}
	}
}

// refusedError is why a page was not shown or an action was not done, in words for the user.
type refusedError struct {
	status int
	text   string
}

// Error is the text that the user reads.
func (r *refusedError) Error() string { return r.text }

// refusalKey is where an action stores its refusal for the page that shows it.
const refusalKey = "postrider.refusal"

// typed is the form of an action that was rejected: the page keeps it.
func typed(c echo.Context) url.Values {
	if c.Get(refusalKey) == nil {
		return nil
	}
	return c.Request().PostForm
}

// wrongForm rejects a value of a form.
func wrongForm(text string) error {
	return &refusedError{status: http.StatusBadRequest, text: "Nothing was done: " + text}
}

// refusalOf is nil for errors of the server, and for what does not exist and has no page.
func refusalOf(err error) *refusedError {
	var own *refusedError
	var locked *access.LockedError
	var said *postgres.FunctionError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own):
		return own
	case errors.As(err, &locked):
		return &refusedError{
			http.StatusTooManyRequests, "Too many wrong passwords. Try again in " + display.Count(locked.Wait) + ".",
		}
	case errors.Is(err, access.ErrNotFirst):
		return &refusedError{http.StatusConflict, "There is an admin already: sign in, or let an admin add you."}
	case errors.Is(err, access.ErrLastAdmin):
		return &refusedError{
			http.StatusConflict, "Nothing was done: this is the last admin who can sign in. Add another one first.",
		}
	case errors.Is(err, access.ErrWrongCredentials):
		return &refusedError{http.StatusForbidden, "Nothing was done: this is not your password."}
	case errors.Is(err, postgres.ErrNotFound):
		return nil
	case errors.As(err, &said):
		text := "Nothing was done: " + said.Message + ". " + advice(said)
		return &refusedError{statusOf(err), strings.TrimSpace(text)}
	}
	for _, conflict := range []error{postgres.ErrPaused, postgres.ErrNotValidated, catalog.ErrNoProbation} {
		if errors.Is(err, conflict) {
			return &refusedError{http.StatusConflict, "Nothing was done: " + conflict.Error() + "."}
		}
	}
	return nil
}

// pageWords are what to do about a refusal with the means of a page; the hints of the functions are SQL.
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
