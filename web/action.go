package web

import (
	"context"
	"net/http"
	"net/url"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/access"
	"postrider/catalog"
	"postrider/web/display"
	"postrider/web/site"
)

// actions are the buttons of pages, by the role that they need. Each is at its page's path, followed by a verb.
func (p *pages) actions() map[access.Role]map[string]echo.HandlerFunc {
	const subscription, delivery, letter = "/subscriptions/:topic/:subscription/", "/deliveries/:id/", "/dead-letters/:id/"
	holds, operator := p.parts.Holds, p.parts.Operator
	return map[access.Role]map[string]echo.HandlerFunc{
		access.RoleOperator: {
			subscription + "pause":    site.Act(p.pause, p.subscription),
			subscription + "resume":   p.hold("resumed", holds.Resume),
			subscription + "release":  p.hold("released", holds.Release),
			subscription + "probe":    p.hold("probed", holds.Probe),
			delivery + "retry":        p.deliveryAction("retried", operator.RetryNow),
			delivery + "cancel":       p.deliveryAction("canceled", operator.Cancel),
			delivery + "dead-letter":  site.Act(p.deadLetterNow, p.delivery),
			letter + "redeliver":      site.Act(p.redeliverOne, p.deadLetter),
			letter + "purge":          site.Act(p.purgeOne, p.purging),
			"/dead-letters/redeliver": site.Act(p.redeliverMany, p.manyToRedeliver),
			"/dead-letters/purge":     site.Act(p.purgeMany, p.manyToPurge),
			"/operations/:id/cancel":  site.Act(p.cancelOperation, p.operation),
		},
		access.RoleAdmin: {
			"/users/add":            site.Act(p.addUser, p.users),
			"/users/:user/change":   site.Act(p.changeUser, p.users),
			"/users/:user/remove":   site.Act(p.removeUser, p.users),
			"/api-keys/create":      site.Act(p.createAPIKey, p.apiKeys),
			"/api-keys/:key/revoke": site.Act(p.revokeAPIKey, p.apiKeys),
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
		"/sign-in":     site.Act(p.signIn, p.signInPage),
		"/first-admin": site.Act(p.firstAdmin, p.signInPage),
		"/sign-out":    site.Act(p.signOut, p.signInPage),
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
	return site.Act(func(ctx context.Context, c echo.Context) (string, error) {
		topic, name := c.Param("topic"), c.Param("subscription")
		_, err := do(ctx, topic, name)
		return subscriptionPath(topic, name) + "?done=" + done, err
	}, p.subscription)
}

// deliveryAction is an action on a delivery.
func (p *pages) deliveryAction(done string, do func(ctx context.Context, id int64) error) echo.HandlerFunc {
	return site.Act(func(ctx context.Context, c echo.Context) (string, error) {
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
