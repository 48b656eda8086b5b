package web

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/access"
	"postrider/web/site"
)

// configForm is a form on a page of its own, at one address: GET shows it, POST does what its button says.
type configForm struct {
	// needs is the role that may see the form and send it.
	needs  access.Role
	handle echo.HandlerFunc
}

// forms change the configuration, show keys and publish. All of them but the last use the REST API, see ask.
func (p *pages) forms() map[string]configForm {
	const topic, subscription = "/topics/:topic/", "/subscriptions/:topic/:subscription/"
	return map[string]configForm{
		"/new-topic":             {access.RoleAdmin, p.edit(p.openTopic)},
		topic + "edit":           {access.RoleAdmin, p.edit(p.openTopic)},
		topic + "delete":         {access.RoleAdmin, p.remove(p.openTopic)},
		topic + "keys":           {access.RoleAdmin, p.topicKeys},
		topic + "publish":        {access.RoleAdmin, p.publish},
		"/subscriptions/new":     {access.RoleAdmin, p.newSubscription},
		subscription + "edit":    {access.RoleAdmin, p.edit(p.openSubscription)},
		subscription + "delete":  {access.RoleAdmin, p.remove(p.openSubscription)},
		"/policies/new":          {access.RoleAdmin, p.edit(p.openPolicy)},
		"/policies/:name/edit":   {access.RoleAdmin, p.edit(p.openPolicy)},
		"/policies/:name/delete": {access.RoleAdmin, p.remove(p.openPolicy)},
		subscription + "test":    {access.RoleOperator, p.testDelivery},
	}
}

// formTime bounds what a form does: a save waits up to 15 s for the handshake with an endpoint, and makes a second one
// if the event subscription was changed meanwhile. The server limits a response to a minute.
const formTime = 45 * time.Second

func (p *pages) formContext(c echo.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.Request().Context(), formTime)
}

// formDone says what a form has done.
var formDone = map[string]string{
	"saved":     "Saved. Pending deliveries use the new settings from their next attempt on.",
	"validated": "Saved. The endpoint has passed the validation handshake; deliveries begin.",
	"awaiting": "Saved. Deliveries wait until the validation URL that the endpoint received is opened. " +
		"See Handshakes below.",
	"handshaking": "Saved. The handshake with the endpoint is in progress; deliveries wait until it succeeds. " +
		"See Handshakes below.",
	"topic-made":     "The topic is created. Publishers need one of its access keys: Access keys shows them.",
	"topic-saved":    "Saved. The settings apply to events that are published from now on.",
	"deleted":        "Deleted. Its pending deliveries are canceled; its dead letters stay.",
	"topic-deleted":  "Deleted. Its events stay until their partition is dropped.",
	"policy-saved":   "Saved. Deliveries use the policy from their next attempt on.",
	"policy-deleted": "Deleted.",
	"tested":         "A sample event is on its way to this event subscription alone. This is its delivery.",
}

// testDelivery sends a sample event to one event subscription.
func (p *pages) testDelivery(c echo.Context) error {
	if c.Request().Method != http.MethodPost {
		return c.Redirect(http.StatusSeeOther, subscriptionPath(c.Param("topic"), c.Param("subscription")))
	}
	return site.Act(func(ctx context.Context, c echo.Context) (string, error) {
		id, err := p.parts.Operator.TestDelivery(ctx, c.Param("topic"), c.Param("subscription"))
		return deliveryPath(id) + "?done=tested", err
	}, p.subscription)(c)
}

// deletionView is what delete.html shows.
type deletionView struct {
	Action, Back, Etag string
	What, Name         string
	Forbidden          string // why it cannot be deleted now; "" if it can
	Canceled           string // how many deliveries
}

// remove confirms a deletion, or deletes the version that was shown.
func (p *pages) remove(open opener) echo.HandlerFunc {
	return func(c echo.Context) error {
		ctx, cancel := p.formContext(c)
		defer cancel()
		e, err := open(ctx, c)
		if err != nil {
			return err
		}
		view := deletionView{
			Action: c.Request().URL.RequestURI(), Back: e.trail[len(e.trail)-1].Href, Etag: e.etag, What: e.noun, Name: e.name,
		}
		if view.Forbidden, view.Canceled, err = e.removal(ctx); err != nil {
			return err
		}
		href := ""
		if c.Request().Method == http.MethodPost {
			var f *form
			if f, err = postedForm(c); err != nil {
				return err
			}
			_, err = p.ask(ctx, c, http.MethodDelete, e.address(e.name), nil, "If-Match", f.get("etag"))
			href, err = e.removed, f.reject(err, "Nothing was deleted")
		}
		return again(c, href, err, func() error {
			return p.Show(c, "delete", "Delete "+e.name+"?", false, view, e.trail...)
		})
	}
}
