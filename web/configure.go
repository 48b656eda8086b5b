package web

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/access"
	"postrider/postgres"
	"postrider/web/display"
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
		topic + "delete":         {access.RoleAdmin, p.remove(p.topicDeletion)},
		topic + "keys":           {access.RoleAdmin, p.topicKeys},
		topic + "publish":        {access.RoleAdmin, p.publish},
		"/subscriptions/new":     {access.RoleAdmin, p.newSubscription},
		subscription + "edit":    {access.RoleAdmin, p.edit(p.openSubscription)},
		subscription + "delete":  {access.RoleAdmin, p.remove(p.subscriptionDeletion)},
		"/policies/new":          {access.RoleAdmin, p.edit(p.openPolicy)},
		"/policies/:name/edit":   {access.RoleAdmin, p.edit(p.openPolicy)},
		"/policies/:name/delete": {access.RoleAdmin, p.remove(p.policyDeletion)},
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
	return p.act(func(ctx context.Context, c echo.Context) (string, error) {
		id, err := p.parts.Operator.TestDelivery(ctx, c.Param("topic"), c.Param("subscription"))
		return deliveryPath(id) + "?done=tested", err
	}, p.subscription)(c)
}

// deletionView is what the pages show that confirm a deletion.
type deletionView struct {
	Action, Back, Etag string
	What, Name         string
	Consequences       []string
	Forbidden          string // why it cannot be deleted now; "" if it can
}

// deletion is the page that confirms the deletion of an object.
type deletion struct {
	view    deletionView
	page    string // the template
	address string // of the object, in the REST API
	next    string // where the user continues
	trail   []link
}

// remove shows what a deletion does, or deletes the version of which this was shown.
func (p *pages) remove(open func(ctx context.Context, c echo.Context) (*deletion, error)) echo.HandlerFunc {
	return func(c echo.Context) error {
		ctx, cancel := p.formContext(c)
		defer cancel()
		d, err := open(ctx, c)
		if err != nil {
			return err
		}
		if c.Request().Method == http.MethodPost {
			f, err := postedForm(c)
			if err != nil {
				return err
			}
			_, err = p.ask(ctx, c, http.MethodDelete, d.address, nil, "If-Match", f.get("etag"))
			if err == nil {
				return c.Redirect(http.StatusSeeOther, d.next)
			}
			if !f.blame(err, nil) {
				return err
			}
			said := f.refusal(err, "Nothing was deleted")
			if said.status == http.StatusPreconditionFailed {
				said.text = "Nothing was deleted: another user has changed it since you opened this page."
			}
			c.Set(refusalKey, said)
		}
		return p.show(c, d.page, "Delete "+d.view.Name+"?", false, d.view, d.trail...)
	}
}

func (p *pages) subscriptionDeletion(ctx context.Context, c echo.Context) (*deletion, error) {
	sub, err := p.parts.Subscriptions.Get(ctx, c.Param("topic"), c.Param("subscription"))
	if err != nil {
		return nil, err
	}
	details, err := p.parts.Reader.ReadSubscriptionDetails(ctx, sub, time.Hour, time.Minute)
	if err != nil {
		return nil, err
	}
	topic, path := "/ui/topics/"+sub.Topic, subscriptionPath(sub.Topic, sub.Name)
	return &deletion{
		page: "subscription-delete", address: apiSubscription(sub.Topic, sub.Name), next: topic + "?done=deleted",
		trail: []link{{topic, sub.Topic}, {path, sub.Name}},
		view: deletionView{
			Action: path + "/delete", Back: path, Etag: etagOf(sub.Version), What: "event subscription", Name: sub.Name,
			Consequences: []string{
				"Its pending deliveries are canceled, now " + display.AtMost(details.Pending, 10_000) + ", without dead letters.",
				"It matches no events that are published from now on.",
				"An attempt in progress may still reach the endpoint.",
				"Its dead letters and finished deliveries stay until they are purged or their partitions are dropped.",
			},
		},
	}, nil
}

func (p *pages) topicDeletion(ctx context.Context, c echo.Context) (*deletion, error) {
	topic, err := p.parts.Topics.Get(ctx, c.Param("topic"))
	if err != nil {
		return nil, err
	}
	subs, err := p.parts.Subscriptions.List(ctx, topic.Name, "", 1)
	if err != nil {
		return nil, err
	}
	path := "/ui/topics/" + topic.Name
	d := &deletion{
		page: "topic-delete", address: apiTopic(topic.Name), next: "/ui/topics?done=topic-deleted",
		trail: []link{{path, topic.Name}},
		view: deletionView{
			Action: path + "/delete", Back: path, Etag: etagOf(topic.Version), What: "topic", Name: topic.Name,
			Consequences: []string{
				"Publishing to it fails with status 404, and its access keys are deleted.",
				"Its events stay until their partition is dropped.",
			},
		},
	}
	if len(subs) > 0 {
		d.view.Forbidden = "It has event subscriptions. Delete those first."
	}
	return d, nil
}

func (p *pages) policyDeletion(_ context.Context, c echo.Context) (*deletion, error) {
	catalogue := p.parts.Cache.Snapshot()
	found, known := catalogue.Policy(c.Param("name"))
	if !known {
		return nil, postgres.ErrNotFound
	}
	d := &deletion{
		page: "policy-delete", address: apiPolicy(found.Name), next: "/ui/policies?done=policy-deleted",
		trail: []link{{"/ui/policies", "Retry policies"}},
		view: deletionView{
			Action: "/ui/policies/" + found.Name + "/delete", Back: "/ui/policies",
			Etag: etagOf(catalogue.PolicyVersion(found.Name)), What: "retry policy", Name: found.Name,
			Consequences: []string{
				"The deletion fails while an event subscription uses the policy.",
				"Recorded attempts keep what the policy decided.",
			},
		},
	}
	if found.BuiltIn {
		d.view.Forbidden = "It is built in and never changes."
	}
	return d, nil
}
