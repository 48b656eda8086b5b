package web

import (
	"context"
	"net/http"
	"net/url"

	"github.com/labstack/echo/v4"

	"postrider/store"
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

// adminName is what the audit calls whoever has the admin token.
const adminName = "admin"

// subscriptionAction changes an event subscription's state.
type subscriptionAction func(ctx context.Context, c echo.Context, topic, subscription string) error

// actions are the forms that pages post.
func (p *pages) actions() map[string]echo.HandlerFunc {
	const at = "/subscriptions/:topic/:subscription/"
	return map[string]echo.HandlerFunc{
		at + "pause": p.act("paused", func(ctx context.Context, c echo.Context, topic, name string) error {
			stop := c.FormValue("stopTimeToLive") != ""
			_, err := p.store.PauseSubscription(ctx, topic, name, &stop)
			return err
		}),
		at + "resume": p.act("resumed", func(ctx context.Context, _ echo.Context, topic, name string) error {
			_, err := p.store.ResumeSubscription(ctx, topic, name)
			return err
		}),
		at + "release": p.act("released", func(ctx context.Context, _ echo.Context, topic, name string) error {
			_, err := p.store.ReleaseSubscription(ctx, topic, name)
			return err
		}),
		at + "probe": p.act("probed", func(ctx context.Context, _ echo.Context, topic, name string) error {
			_, err := p.store.ProbeSubscription(ctx, topic, name)
			return err
		}),
	}
}

// doneText says what an action has done.
func doneText(done string) string {
	return map[string]string{
		"paused":   "Paused. Deliveries wait, and none is lost; an attempt that is under way finishes.",
		"resumed":  "Resumed. What waited is released in waves.",
		"released": "The probation is over. What waited is released in waves.",
		"probed":   "One delivery is let through now. If it succeeds, the probation is over.",
	}[done]
}

// act does it in the name of whoever has the admin token, and leads back to the event subscription's page.
func (p *pages) act(done string, do subscriptionAction) echo.HandlerFunc {
	return func(c echo.Context) error {
		ctx, cancel := pageContext(c)
		defer cancel()
		ctx = store.WithActor(ctx, store.Actor{Name: adminName, Address: c.RealIP()})
		topic, name := c.Param("topic"), c.Param("subscription")
		if err := do(ctx, c, topic, name); err != nil {
			return err
		}
		return c.Redirect(http.StatusSeeOther, subscriptionPath(topic, name)+"?done="+done)
	}
}

func subscriptionPath(topic, name string) string {
	return "/ui/subscriptions/" + url.PathEscape(topic) + "/" + url.PathEscape(name)
}
