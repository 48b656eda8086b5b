package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"postrider/catalog"
)

// subscriptionEditor is the form of one event subscription, while it is looked at or sent.
type subscriptionEditor struct {
	subscriptionFields
	changes []change
	was     string
}

func (p *pages) newSubscription(c echo.Context) error {
	if topic := c.QueryParam("topic"); topic != "" {
		return p.editSubscription(c, topic, "")
	}
	return p.chooseTopic(c)
}

// chooseView is what subscription-topic.html shows.
type chooseView struct{ Topics []string }

// choosable is how many topics can be chosen from; one of more is reached from its own page.
const choosable = 500

// chooseTopic asks which topic a new event subscription is for: its form depends on it.
func (p *pages) chooseTopic(c echo.Context) error {
	ctx, cancel := pageContext(c)
	defer cancel()
	topics, err := p.parts.Topics.List(ctx, "", choosable)
	if err != nil {
		return err
	}
	view := chooseView{}
	for _, topic := range topics {
		view.Topics = append(view.Topics, topic.Name)
	}
	return p.show(c, "subscription-topic", "New event subscription", false, view)
}

func (p *pages) changeSubscription(c echo.Context) error {
	return p.editSubscription(c, c.Param("topic"), c.Param("subscription"))
}

// editSubscription shows the form, or does what its button says. name is "" for a new one.
func (p *pages) editSubscription(c echo.Context, topic, name string) error {
	ctx, cancel := p.formContext(c)
	defer cancel()
	e, err := p.openSubscription(ctx, c, topic, name)
	if err != nil {
		return err
	}
	if c.Request().Method == http.MethodPost {
		if href, err := p.submitSubscription(ctx, c, e); err != nil || href != "" {
			return leave(c, href, err)
		}
	}
	return p.showSubscriptionForm(c, e)
}

// openSubscription fills the form: with what was sent, else with what is stored.
func (p *pages) openSubscription(ctx context.Context, c echo.Context, topic, name string) (*subscriptionEditor, error) {
	e := &subscriptionEditor{}
	var err error
	if e.topic, err = p.parts.Topics.Get(ctx, topic); err != nil {
		return nil, err
	}
	e.policies = p.parts.Cache.Snapshot().Policies()
	e.action = "/ui/subscriptions/new?topic=" + topic
	spec := catalog.SubscriptionSpec{
		EndpointKind: "webhook", Behavior: "safe", RetryPolicy: catalog.RetryPolicySpec{Policy: "ga-2021"},
	}
	if e.topic.Kind == catalog.TopicNamespace {
		spec.RetryPolicy.Policy = "namespace-2023"
	}
	if name != "" {
		if e.existing, err = p.parts.Subscriptions.Get(ctx, topic, name); err != nil {
			return nil, err
		}
		e.action, spec = subscriptionPath(topic, name)+"/edit", e.existing.SubscriptionSpec
	}
	if c.Request().Method == http.MethodPost {
		e.form, err = postedForm(c)
		return e, err
	}
	e.form = subscriptionForm(&spec)
	return e, e.remember()
}

// remember writes down what the form was made from: its version, and its settings without a secret, for whoever comes
// too late.
func (e *subscriptionEditor) remember() error {
	if e.existing == nil {
		return nil
	}
	settings, err := e.stored()
	e.was = string(settings)
	e.form.set("etag", etagOf(e.existing.Version))
	e.form.set("was", e.was)
	return err
}

func (e *subscriptionEditor) stored() ([]byte, error) {
	spec := &e.existing.SubscriptionSpec
	settings := subscriptionSettings(subscriptionForm(spec), spec)
	settings["endpointBaseUrl"] = spec.EndpointBaseURL()
	return plainJSON(settings)
}

// submitSubscription does what the button says. href is where the person goes on; "" stays with the form.
func (p *pages) submitSubscription(
	ctx context.Context, c echo.Context, e *subscriptionEditor,
) (href string, err error) {
	f := e.form
	switch {
	case f.has("add"):
		e.focus = f.get("add")
		first := map[string]string{filterList: "operatorType", headerList: "type"}[e.focus]
		if first != "" {
			f.set(fmt.Sprintf("%s[%d].%s", e.focus, f.rows(e.focus), first), "")
		}
		return "", nil
	case f.has("remove"):
		f.removeRow(removed(f.get("remove")))
		return "", nil
	}
	f.dropEmptyRows(filterList, "key", "value")
	f.dropEmptyRows(headerList, "name", "properties")
	if f.has("test") {
		return "", p.testFilter(ctx, c, e)
	}
	return p.saveSubscription(ctx, c, e)
}

func (p *pages) saveSubscription(ctx context.Context, c echo.Context, e *subscriptionEditor) (href string, err error) {
	answer, err := p.putSubscription(ctx, c, e)
	if err != nil {
		return "", p.refuseSubscription(ctx, c, e, err)
	}
	var saved struct {
		Topic, Name, ProvisioningState, EndpointValidation string
	}
	if err := answer.read(&saved); err != nil {
		return "", err
	}
	done := map[string]string{
		"AwaitingManualAction": "awaiting", "Creating": "handshaking", "Updating": "handshaking",
	}[saved.ProvisioningState]
	if done == "" {
		done = "saved"
		if saved.EndpointValidation == string(catalog.ValidationRequired) &&
			(e.existing == nil || e.form.has("endpointUrl")) {
			done = "validated"
		}
	}
	return subscriptionPath(saved.Topic, saved.Name) + "?done=" + done, nil
}

// putSubscription makes a new one, or changes those settings that the form has: of the endpoint only what was typed.
func (p *pages) putSubscription(ctx context.Context, c echo.Context, e *subscriptionEditor) (*apiAnswer, error) {
	var was *catalog.SubscriptionSpec
	method, name, condition := http.MethodPut, e.form.get("name"), []string{"If-None-Match", "*"}
	if e.existing != nil {
		was, method, name = &e.existing.SubscriptionSpec, http.MethodPatch, e.existing.Name
		condition = []string{"If-Match", e.form.get("etag")}
	}
	settings := subscriptionSettings(e.form, was)
	if e.existing == nil || e.form.has("endpointUrl") {
		settings["endpointUrl"] = e.form.get("endpointUrl")
	}
	body, err := plainJSON(settings)
	if err != nil {
		return nil, fmt.Errorf("write the settings: %w", err)
	}
	if name == "" {
		return nil,
			&apiError{status: http.StatusBadRequest, Details: []apiProblem{{Target: "name", Message: "A name is required."}}}
	}
	return p.ask(ctx, c, method, apiSubscription(e.topic.Name, name), body, condition...)
}

// refuseSubscription says at each field what is wrong with it. Who comes too late sees what others have changed
// meanwhile, and keeps what was typed: the form is then one for the version that they have left.
func (p *pages) refuseSubscription(ctx context.Context, c echo.Context, e *subscriptionEditor, err error) error {
	var refused *apiError
	switch late := errors.As(err, &refused) && refused.status == http.StatusPreconditionFailed; {
	case late && e.existing == nil:
		refused.Details = []apiProblem{{Target: "name", Message: "There is an event subscription of this name already."}}
	case late:
		if e.existing, err = p.parts.Subscriptions.Get(ctx, e.topic.Name, e.existing.Name); err != nil {
			return err
		}
		was := e.form.get("was")
		if err := e.remember(); err != nil {
			return err
		}
		e.changes = changesOf(was, e.was)
		c.Set(refusalKey,
			&refusedError{status: http.StatusPreconditionFailed, text: "Nothing was saved: somebody else has changed this " +
				"event subscription since you opened the form."})
		return nil
	}
	if !e.form.blame(err, namesOf(e.sections())) {
		return err
	}
	c.Set(refusalKey, e.form.refusal(err, "Nothing was saved"))
	return nil
}

func (p *pages) showSubscriptionForm(c echo.Context, e *subscriptionEditor) error {
	view := formView{
		Action: e.action, Back: "/ui/topics/" + e.topic.Name, Save: "Create", Etag: e.form.get("etag"),
		Was:    e.form.get("was"),
		Others: e.form.others, Changes: e.changes, Sections: e.sections(),
	}
	title, trail := "New event subscription", []link{{"/ui/topics/" + e.topic.Name, e.topic.Name}}
	if e.existing != nil {
		title, view.Save, view.Back = "Edit "+e.existing.Name, "Save", subscriptionPath(e.topic.Name, e.existing.Name)
		trail = append(trail, link{view.Back, e.existing.Name})
	}
	return p.show(c, "subscription-form", title, false, view, trail...)
}

// change is a setting that somebody else has changed.
type change struct{ Setting, Was, Now string }

// changesOf compares settings, both as JSON. Lists are compared as a whole.
func changesOf(was, now string) (changes []change) {
	before, after := flat(was), flat(now)
	var names []string
	for name := range before {
		names = append(names, name)
	}
	for name := range after {
		if _, known := before[name]; !known {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if before[name] != after[name] {
			changes = append(changes, change{name, orNothing(before[name]), orNothing(after[name])})
		}
	}
	return changes
}

func orNothing(text string) string {
	if text == "" || text == "null" || text == `""` || text == "[]" {
		return "not set"
	}
	return text
}

// flat reads settings into the JSON texts of its members, by path.
func flat(settings string) map[string]string {
	found := map[string]string{}
	var walk func(path string, raw json.RawMessage)
	walk = func(path string, raw json.RawMessage) {
		var members map[string]json.RawMessage
		if json.Unmarshal(raw, &members) != nil || members == nil {
			found[path] = string(raw)
			return
		}
		for name, member := range members {
			walk(strings.TrimPrefix(path+"."+name, "."), member)
		}
	}
	walk("", json.RawMessage(settings))
	delete(found, "")
	return found
}
