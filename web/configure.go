package web

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/access"
	"postrider/web/display"
)

// configForm is a form on a page of its own, at one address: GET shows it, POST does what its button says.
type configForm struct {
	// needs is the role of whoever may see the form and send it.
	needs  access.Role
	handle echo.HandlerFunc
}

// forms change the configuration, show keys and publish. All of them but the last ask the REST API, see ask.
func (p *pages) forms() map[string]configForm {
	const topic, subscription = "/topics/:topic/", "/subscriptions/:topic/:subscription/"
	return map[string]configForm{
		"/new-topic":             {access.RoleAdmin, p.newTopic},
		topic + "edit":           {access.RoleAdmin, p.changeTopic},
		topic + "delete":         {access.RoleAdmin, p.deleteTopic},
		topic + "keys":           {access.RoleAdmin, p.topicKeys},
		topic + "publish":        {access.RoleAdmin, p.publish},
		"/subscriptions/new":     {access.RoleAdmin, p.newSubscription},
		subscription + "edit":    {access.RoleAdmin, p.changeSubscription},
		subscription + "delete":  {access.RoleAdmin, p.deleteSubscription},
		"/policies/new":          {access.RoleAdmin, p.newPolicy},
		"/policies/:name/edit":   {access.RoleAdmin, p.changePolicy},
		"/policies/:name/delete": {access.RoleAdmin, p.deletePolicy},
		subscription + "test":    {access.RoleOperator, p.testDelivery},
	}
}

// formTime bounds what a form does: a save waits up to 15 s for the handshake with an endpoint, and makes a second one
// where somebody else was quicker. The server gives an answer a minute.
const formTime = 45 * time.Second

// formContext is that of the person who sends the form.
func (p *pages) formContext(c echo.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(c.Request().Context(), formTime)
	return ctx, cancel
}

// leave goes on where the form leads.
func leave(c echo.Context, href string, err error) error {
	if err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, href)
}

// formDone says what a form has done.
var formDone = map[string]string{
	"saved":     "Saved. What is owed already goes by the new settings from its next attempt on.",
	"validated": "Saved. The endpoint has answered the handshake; deliveries go to it.",
	"awaiting": "Saved. The endpoint answered, and somebody has to open the validation URL that it was sent; " +
		"until then deliveries wait. See Handshakes below.",
	"handshaking": "Saved. The handshake with the endpoint is still under way; until it succeeds deliveries wait. " +
		"See Handshakes below.",
	"topic-made":     "The topic is there. Publishers need one of its access keys: Access keys shows them.",
	"topic-saved":    "Saved. It holds for events that are published from now on.",
	"deleted":        "Deleted. What it was owed is canceled; its dead letters stay.",
	"topic-deleted":  "Deleted. Its events stay until their day is dropped.",
	"policy-saved":   "Saved. Deliveries go by it from their next attempt on.",
	"policy-deleted": "Deleted.",
	"tested":         "A sample event is on its way to this event subscription alone. This is its delivery.",
}

// testDelivery sends a sample event to one event subscription.
func (p *pages) testDelivery(c echo.Context) error {
	if c.Request().Method != http.MethodPost {
		return c.Redirect(http.StatusSeeOther, subscriptionPath(c.Param("topic"), c.Param("subscription")))
	}
	return p.act(func(ctx context.Context, c echo.Context) (string, error) {
		id, err := p.parts.Operator.TestDelivery(ctx, c.Param("topic"), c.Param("subscription"))
		return deliveryPath(id) + "?done=tested", err
	}, p.subscription)(c)
}

// deletionView is what the pages show that ask before something is deleted: what goes, and what becomes of what waits.
type deletionView struct {
	Action, Back, Etag string
	What, Name         string
	Consequences       []string
	Forbidden          string // why it cannot be deleted now; "" where it can
}

// deletion is something that a form deletes.
type deletion struct {
	view    deletionView
	page    string // the template
	api     string // its address
	section string // where one goes on
	done    string
	title   string
	trail   []link
}

// confirmDeletion asks first, and deletes what was looked at: who has seen an earlier version is asked again.
func (p *pages) confirmDeletion(ctx context.Context, c echo.Context, d *deletion) error {
	if c.Request().Method == http.MethodPost {
		f, err := postedForm(c)
		if err != nil {
			return err
		}
		var condition []string
		if d.view.Etag != "" {
			condition = []string{"If-Match", f.get("etag")}
		}
		if _, err = p.ask(ctx, c, http.MethodDelete, d.api, nil, condition...); err == nil {
			return c.Redirect(http.StatusSeeOther, d.section+"?done="+d.done)
		}
		if !f.blame(err, nil) {
			return err
		}
		said := f.refusal(err, "Nothing was deleted")
		if said.status == http.StatusPreconditionFailed {
			said.text = "Nothing was deleted: it was changed since you looked at it. Look again."
		}
		c.Set(refusalKey, said)
	}
	return p.show(c, d.page, d.title, false, d.view, d.trail...)
}

func (p *pages) deleteSubscription(c echo.Context) error {
	ctx, cancel := p.formContext(c)
	defer cancel()
	sub, err := p.parts.Subscriptions.Get(ctx, c.Param("topic"), c.Param("subscription"))
	if err != nil {
		return err
	}
	details, err := p.parts.Reader.ReadSubscriptionDetails(ctx, sub, time.Hour, time.Minute)
	if err != nil {
		return err
	}
	path := subscriptionPath(sub.Topic, sub.Name)
	waiting := "Nothing is owed to it at the moment."
	if details.Pending > 0 {
		waiting = "What it is owed and has not got yet is canceled, " + display.AtMost(details.Pending, 10_000) +
			" by now: no dead letters come of it."
	}
	return p.confirmDeletion(ctx, c, &deletion{
		page: "subscription-delete", api: apiSubscription(sub.Topic, sub.Name), section: "/ui/topics/" + sub.Topic,
		done: "deleted", title: "Delete " + sub.Name + "?",
		trail: []link{{"/ui/topics/" + sub.Topic, sub.Topic}, {path, sub.Name}},
		view: deletionView{
			Action: path + "/delete", Back: path, Etag: etagOf(sub.Version), What: "event subscription", Name: sub.Name,
			Consequences: []string{
				waiting, "Events that are published from now on are not owed to it.", "An attempt that is " +
					"under way may still reach the endpoint.",
				"Its dead letters, and what was delivered, stay until they are purged or their days are dropped.",
			},
		},
	})
}

func (p *pages) deleteTopic(c echo.Context) error {
	ctx, cancel := p.formContext(c)
	defer cancel()
	topic, err := p.parts.Topics.Get(ctx, c.Param("topic"))
	if err != nil {
		return err
	}
	subs, err := p.parts.Subscriptions.List(ctx, topic.Name, "", 1)
	if err != nil {
		return err
	}
	path := "/ui/topics/" + topic.Name
	d := &deletion{
		page: "topic-delete", api: apiTopic(topic.Name), section: "/ui/topics", done: "topic-deleted",
		title: "Delete " + topic.Name + "?", trail: []link{{path, topic.Name}},
		view: deletionView{
			Action: path + "/delete", Back: path, Etag: etagOf(topic.Version), What: "topic", Name: topic.Name,
			Consequences: []string{"Publishers are answered 404 from then on, and its access keys are gone.", "Its events " +
				"stay until their day is dropped."},
		},
	}
	if len(subs) > 0 {
		d.view.Forbidden = "It has event subscriptions. Delete those first."
	}
	return p.confirmDeletion(ctx, c, d)
}
