package web

import (
	"context"
	"net/http"
	"net/url"

	"github.com/labstack/echo/v4"

	"postrider/postgres"
	"postrider/web/display"
)

// sameOrigin refuses a form that another site's page sent: the browser would send the password along with it. Browsers
// say where a request comes from (Sec-Fetch-Site, Origin); whatever says nothing is no browser.
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

// adminName is what the audit calls whoever has the admin token, and whoever sits before a dashboard that asks for no
// login.
const adminName = "admin"

// deed is what a form asks for. It answers the page where what came of it can be seen.
type deed func(ctx context.Context, c echo.Context) (href string, err error)

// actions are the forms that pages post. Each is at its page's path, followed by a verb.
func (p *pages) actions() map[string]echo.HandlerFunc {
	const subscription, delivery, letter = "/subscriptions/:topic/:subscription/", "/deliveries/:id/", "/dead-letters/:id/"
	return map[string]echo.HandlerFunc{
		subscription + "pause":    p.act(p.pause, p.subscription),
		subscription + "resume":   p.act(p.resume, p.subscription),
		subscription + "release":  p.act(p.release, p.subscription),
		subscription + "probe":    p.act(p.probe, p.subscription),
		delivery + "retry":        p.act(p.retryNow, p.delivery),
		delivery + "cancel":       p.act(p.cancelDelivery, p.delivery),
		delivery + "dead-letter":  p.act(p.deadLetterNow, p.delivery),
		letter + "redeliver":      p.act(p.redeliverOne, p.deadLetter),
		letter + "purge":          p.act(p.purgeOne, p.purging),
		"/dead-letters/redeliver": p.act(p.redeliverMany, p.manyToRedeliver),
		"/dead-letters/purge":     p.act(p.purgeMany, p.manyToPurge),
		"/operations/:id/cancel":  p.act(p.cancelOperation, p.operation),
	}
}

// adminActions are the forms about who else may come in.
func (p *pages) adminActions() map[string]echo.HandlerFunc {
	return map[string]echo.HandlerFunc{
		"/users/add":            p.accountDeed(p.addUser, p.users),
		"/users/:user/change":   p.accountDeed(p.changeUser, p.users),
		"/users/:user/remove":   p.accountDeed(p.removeUser, p.users),
		"/api-keys/create":      p.createAPIKey,
		"/api-keys/:key/revoke": p.accountDeed(p.revokeAPIKey, p.apiKeys),
	}
}

// strangersActions are the forms that need no login: those that begin a session, and the one that ends it, which may be
// over already.
func (p *pages) strangersActions() map[string]echo.HandlerFunc {
	return map[string]echo.HandlerFunc{"/sign-in": p.signIn, "/first-admin": p.firstAdmin, "/sign-out": p.signOut}
}

// ownActions are the forms about whoever posts them.
func (p *pages) ownActions() map[string]echo.HandlerFunc {
	return map[string]echo.HandlerFunc{
		"/account/password":            p.accountDeed(p.changePassword, p.account),
		"/account/sign-out-everywhere": p.accountDeed(p.signOutEverywhere, p.account),
		"/account/keys/create":         p.createPersonalKey,
		"/account/keys/:key/revoke":    p.accountDeed(p.revokePersonalKey, p.account),
		"/login/approve":               p.decideLogin("login-approved", p.approveLogin),
		"/login/deny":                  p.decideLogin("login-denied", p.denyLogin),
	}
}

// doneText says what an action has done.
func doneText(done string) string {
	if text, known := formDone[done]; known {
		return text
	}
	return map[string]string{
		"paused":   "Paused. Deliveries wait, and none is lost; an attempt that is under way finishes.",
		"resumed":  "Resumed. What waited is released in waves.",
		"released": "The probation is over. What waited is released in waves.",
		"probed":   "One delivery is let through now. If it succeeds, the probation is over.",
		"retried":  "Its next attempt is due now.",
		"canceled": "Canceled. A request that was under way may still have reached the endpoint; nothing of it is " +
			"recorded.",
		"dead-lettered": "Given up. This is its dead letter.",
		"redelivered":   "Redelivered. This is the new delivery; the dead letter stays.",
		"purged":        "Purged. Nothing is left of the dead letter.",
		"started":       "Started. It goes on by itself, whether this page is open or not.",
		"stopped":       "Stopped. What was done stays done.",
		"over":          "It was over already.",

		"login-approved":   "Approved. The computer gets its key.",
		"login-denied":     "Denied. The computer gets no key.",
		"signed-out":       "Signed out.",
		"password-changed": "The password is changed. Sign in with the new one.",
		"user-added":       "Added. Tell the person the password; it can be changed after signing in.",
		"user-changed":     "Changed. Where the role, the password or the access changed, all sessions have ended.",
		"user-removed":     "Removed, with all sessions.",
		"sessions-ended":   "All sessions and personal keys have ended.",
		"key-revoked":      "Revoked. No node takes it any more after a second.",
	}[done]
}

// act does it in the name of whoever has signed in, and leads to what came of it. What the store refuses is said on the
// form's own page.
func (p *pages) act(do deed, page echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		ctx, cancel := pageContext(c)
		defer cancel()
		href, err := do(ctx, c)
		if said := refusalOf(err); said != nil {
			c.Set(refusalKey, said)
			return page(c)
		}
		if err != nil {
			return err
		}
		return c.Redirect(http.StatusSeeOther, href)
	}
}

func (p *pages) pause(ctx context.Context, c echo.Context) (href string, err error) {
	stop := c.FormValue("stopTimeToLive") != ""
	_, err = p.parts.Holds.Pause(ctx, c.Param("topic"), c.Param("subscription"), &stop)
	return subscriptionDone(c, "paused"), err
}

func (p *pages) resume(ctx context.Context, c echo.Context) (href string, err error) {
	_, err = p.parts.Holds.Resume(ctx, c.Param("topic"), c.Param("subscription"))
	return subscriptionDone(c, "resumed"), err
}

func (p *pages) release(ctx context.Context, c echo.Context) (href string, err error) {
	_, err = p.parts.Holds.Release(ctx, c.Param("topic"), c.Param("subscription"))
	return subscriptionDone(c, "released"), err
}

func (p *pages) probe(ctx context.Context, c echo.Context) (href string, err error) {
	_, err = p.parts.Holds.Probe(ctx, c.Param("topic"), c.Param("subscription"))
	return subscriptionDone(c, "probed"), err
}

func subscriptionDone(c echo.Context, done string) string {
	return subscriptionPath(c.Param("topic"), c.Param("subscription")) + "?done=" + done
}

func subscriptionPath(topic, name string) string {
	return "/ui/subscriptions/" + url.PathEscape(topic) + "/" + url.PathEscape(name)
}

func deliveryPath(id int64) string { return "/ui/deliveries/" + display.IDText(id) }

func (p *pages) retryNow(ctx context.Context, c echo.Context) (href string, err error) {
	id, ok := display.ParseID(c.Param("id"))
	if !ok {
		return "", postgres.ErrNotFound
	}
	return deliveryPath(id) + "?done=retried", p.parts.Operator.RetryNow(ctx, id)
}

func (p *pages) cancelDelivery(ctx context.Context, c echo.Context) (href string, err error) {
	id, ok := display.ParseID(c.Param("id"))
	if !ok {
		return "", postgres.ErrNotFound
	}
	return deliveryPath(id) + "?done=canceled", p.parts.Operator.Cancel(ctx, id)
}

func (p *pages) deadLetterNow(ctx context.Context, c echo.Context) (href string, err error) {
	id, ok := display.ParseID(c.Param("id"))
	if !ok {
		return "", postgres.ErrNotFound
	}
	letter, err := p.parts.Operator.DeadLetterNow(ctx, id)
	return deadLetterPath(letter) + "?done=dead-lettered", err
}
