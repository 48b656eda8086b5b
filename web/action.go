package web

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/internal/access"
	"postrider/internal/catalog"
	"postrider/internal/operator"
	"postrider/web/display"
	"postrider/web/site"
)

// actions are the buttons of pages by required role. The path is the page's, followed by a verb.
func (p *pages) actions() map[access.Role]map[string]echo.HandlerFunc {
	const subscription, delivery, deadLetter = "/subscriptions/:topic/:subscription/", "/deliveries/:id/",
		"/dead-letters/:id/"
	const problem, relayFeed = "/problems/:id/", "/topics/:topic/relay-feeds/:id/"
	holds, act := p.Parts.Holds, p.Parts.Operator
	return map[access.Role]map[string]echo.HandlerFunc{
		access.RoleOperator: {
			subscription + "pause":      site.Act(p.pause, p.subscription),
			subscription + "resume":     p.hold("resumed", holds.Resume),
			subscription + "release":    p.hold("released", holds.Release),
			subscription + "probe":      p.hold("probed", holds.Probe),
			subscription + "test":       site.Act(p.testDelivery, p.subscription),
			delivery + "retry":          p.deliveryAction("retried", act.RetryNow),
			delivery + "cancel":         p.deliveryAction("canceled", act.Cancel),
			delivery + "dead-letter":    actOn(numberParam, p.deadLetterNow, p.delivery),
			problem + "acknowledge":     actOn(uuidParam, p.acknowledgeProblem, p.problem),
			problem + "resolve":         actOn(uuidParam, p.resolveProblem, p.problem),
			relayFeed + "open-callback": site.Act(p.openRelayCallback, p.topic),
			deadLetter + "redeliver":    actOn(uuidParam, p.redeliverOne, p.deadLetter),
			deadLetter + "resolve":      actOn(uuidParam, p.resolveOne, p.deadLetter),
			deadLetter + "reopen":       actOn(uuidParam, p.reopenOne, p.deadLetter),
			deadLetter + "purge":        actOn(uuidParam, p.purgeOne, p.purging),
			"/events/:id/redeliver":     actOn(uuidParam, p.redeliverEvent, p.event),
			"/dead-letters/redeliver":   p.bulk(operator.Redeliver),
			"/dead-letters/repair":      p.bulk(operator.Repair),
			"/dead-letters/resolve":     p.bulk(operator.Resolve),
			"/dead-letters/purge":       p.bulk(operator.Purge),
			"/deliveries/retry":         p.bulk(operator.Retry),
			"/deliveries/cancel":        p.bulk(operator.Cancel),
			"/operations/:id/cancel":    actOn(uuidParam, p.cancelOperation, p.operation),
		},
		access.RoleAdmin: {
			"/users/add":            site.Act(p.addUser, p.users),
			"/users/:user/change":   site.Act(p.changeUser, p.users),
			"/users/:user/remove":   site.Act(p.removeUser, p.users),
			"/api-keys/create":      site.Act(p.createAPIKey, p.apiKeys),
			"/api-keys/:key/revoke": site.Act(p.revokeAPIKey, p.apiKeys),
		},
		access.RoleViewer: {
			"/columns":                     chooseColumns,
			"/account/password":            p.accountAction(p.changePassword, p.account),
			"/account/sign-out-everywhere": p.accountAction(p.signOutEverywhere, p.account),
			"/account/keys/create":         p.accountAction(p.createPersonalKey, p.account),
			"/account/keys/:key/revoke":    p.accountAction(p.revokePersonalKey, p.account),
		},
	}
}

// chooseColumns stores the columns of a list in the browser.
func chooseColumns(c echo.Context) error {
	form := c.Request().PostForm
	columns := form["column"]
	if form.Get("default") != "" {
		columns = nil
	}
	display.ChooseColumns(c, form.Get("list"), columns)
	return c.Redirect(http.StatusSeeOther, ownPage(form.Get("back")))
}

// doneTexts are the results of actions and forms, by their code in the address.
var doneTexts = map[string]string{
	"paused":   "Paused. Deliveries are held; an attempt in progress finishes.",
	"resumed":  "Resumed. Held deliveries are released in steps.",
	"released": "The probation has ended. Held deliveries are released in steps.",
	"probed":   "One delivery is sent as a probe. If it succeeds, the probation ends.",
	"tested":   "A sample event was published for this event subscription only. This is its delivery.",
	"retried":  "The next attempt is due now.",
	"canceled": "Canceled. A request in progress may still reach the endpoint; its result is not recorded.",

	"dead-lettered": "Dead-lettered. This is the dead letter.",
	"redelivered":   "Redelivered. This is the new delivery; the dead letter stays.",
	"sent-again":    "Redelivered. This is the new delivery.",
	"resolved":      "Resolved. It is no longer counted as open.",
	"acknowledged":  "Acknowledged. Alerts and notices leave it out for the time that you chose.",
	"reopened":      "The resolution was taken back.",

	"callback-opened": "The callback is requested; the feed below shows its result.",

	"problem-resolved": "Resolved. Lists hide it until it fails again.",

	"repaired": "Redelivered with an edited event. This is its delivery; the dead letter stays.",
	"purged":   "Purged. The dead letter is deleted.",
	"started":  "Started. The operation continues if you close this page.",
	"stopped":  "Canceled. Completed changes stay.",
	"over":     "The operation had already finished.",

	"saved":     "Saved. Pending deliveries use the new settings from their next attempt on.",
	"validated": "Saved. The endpoint passed the validation handshake; deliveries begin.",
	"awaiting": "Saved. Deliveries are held until the validation URL that the endpoint received is opened. " +
		"See Handshakes below.",
	"handshaking": "Saved. The handshake with the endpoint is in progress; deliveries are held until it succeeds. " +
		"See Handshakes below.",
	"topic-created":  "Created. Publishers need an access key of the topic; see Access keys.",
	"topic-saved":    "Saved. The settings apply to events published from now on.",
	"deleted":        "Deleted. Its pending deliveries are canceled; its dead letters stay.",
	"topic-deleted":  "Deleted. Its events stay until their partition is dropped.",
	"policy-saved":   "Saved. Deliveries use the policy from their next attempt on.",
	"policy-deleted": "Deleted.",

	"signed-out":       "Signed out.",
	"password-changed": "Password changed. Sign in with the new one.",
	"user-added":       "Added. Give the user the password; the user can change it after sign-in.",
	"user-changed":     "Changed. A new role, password or access ends all sessions of the user.",
	"user-removed":     "Removed, with all sessions.",
	"sessions-ended":   "All sessions and personal keys have ended.",
	"query-saved":      "Saved. The query opens from the list of saved queries.",
	"query-deleted":    "Deleted.",
	"key-revoked":      "Revoked. All nodes reject the key within one second.",
}

func (p *pages) pause(ctx context.Context, c echo.Context) (href string, err error) {
	stop := c.FormValue("stopTimeToLive") != ""
	topic, name := c.Param("topic"), c.Param("subscription")
	_, err = p.Parts.Holds.Pause(ctx, topic, name, &stop)
	return subscriptionPath(topic, name) + "?done=paused", err
}

// hold is an action that changes or ends the hold of an event subscription.
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
	return actOn(numberParam, func(ctx context.Context, _ echo.Context, id int64) (string, error) {
		return deliveryPath(id) + "?done=" + done, do(ctx, id)
	}, p.delivery)
}

func (p *pages) deadLetterNow(ctx context.Context, c echo.Context, id int64) (href string, err error) {
	deadLetter, err := p.Parts.Operator.DeadLetterNow(ctx, id)
	return deadLetterPath(deadLetter) + "?done=dead-lettered", err
}

// openRelayCallback opens the callback of a feed of a relay topic.
func (p *pages) openRelayCallback(ctx context.Context, c echo.Context) (href string, err error) {
	id, err := numberParam(c)
	if err != nil {
		return "", err
	}
	return "/ui/topics/" + url.PathEscape(c.Param("topic")) + "?done=callback-opened",
		p.Parts.Operator.OpenRelayCallback(ctx, id)
}

// testDelivery sends a sample event to one event subscription.
func (p *pages) testDelivery(ctx context.Context, c echo.Context) (href string, err error) {
	id, err := p.Parts.Operator.TestDelivery(ctx, c.Param("topic"), c.Param("subscription"))
	return deliveryPath(id) + "?done=tested", err
}

func subscriptionPath(topic, name string) string {
	return "/ui/subscriptions/" + url.PathEscape(topic) + "/" + url.PathEscape(name)
}

func deliveryPath(id int64) string { return "/ui/deliveries/" + strconv.FormatInt(id, 10) }

func deadLetterPath(id uuid.UUID) string { return "/ui/dead-letters/" + id.String() }

// sameOrigin rejects forms of other sites, with which the browser would send the session. Browsers send the origin of a
// request (Sec-Fetch-Site, Origin); a client that sends neither is not a browser.
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
