package v1

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"postrider/server/api"
)

// Configuration are the objects that a file declares. Absent settings have their defaults, as in a PUT.
type Configuration struct {
	// Your own retry policies.
	Policies []json.RawMessage `json:"policies,omitempty" items:"Policy"`
	// Topics, which can contain their event subscriptions.
	Topics []json.RawMessage `json:"topics,omitempty" items:"DeclaredTopic"`
	// Event subscriptions with their topics.
	Subscriptions []json.RawMessage `json:"subscriptions,omitempty" items:"DeclaredSubscription"`
}

// ConfigurationChanges are the changes that a configuration needs, in the order in which they are made.
type ConfigurationChanges struct {
	// Version of the changes that have not been made, for If-Match.
	ETag string `json:"etag"`
	// All objects of the request, and those to delete.
	Changes []ConfigurationChange `json:"changes"`
	// Why the first change that has not been made was rejected.
	Error *api.Error `json:"error,omitempty"`
}

// ObjectName names a retry policy, a topic or an event subscription.
type ObjectName struct {
	// Kind of the object.
	Kind string `json:"kind" enum:"policy,topic,subscription"`
	// Topic of an event subscription.
	Topic string `json:"topic,omitempty"`
	// Name of the object.
	Name string `json:"name"`
}

// Title is the kind and the name in one text.
func (o ObjectName) Title() string {
	if o.Topic != "" {
		return o.Kind + " " + o.Topic + "/" + o.Name
	}
	return o.Kind + " " + o.Name
}

// ConfigurationChange is the change of one object.
type ConfigurationChange struct {
	ObjectName
	// none: the object is as declared.
	Change string `json:"change" enum:"create,update,delete,none"`
	// Settings that change. For a new object, those that the request names.
	Properties []PropertyChange `json:"properties"`
	// true if this request has made the change.
	Applied bool `json:"applied,omitempty"`
}

// PropertyChange is a setting that changes. Values are JSON, cut after 200 characters. *** replaces secrets.
type PropertyChange struct {
	// Path of the setting, such as retryPolicy.maxDeliveryAttempts.
	Property string `json:"property"`
	// Value before the change; empty without one.
	Before string `json:"before"`
	// Value after the change; empty without one.
	After string `json:"after"`
}

// applyTime is how long a request begins changes. The last one can wait for a validation handshake.
const applyTime = 15 * time.Second

type applyRequest struct {
	api.IfMatchHeader
	// true returns the changes and makes none. No endpoint is called.
	DryRun bool `query:"dryRun"`
	// What to delete. all: each object that the request does not name, except built-in policies and postrider's own
	// topics. subscriptions: the event subscriptions of topics that have one in the request.
	Prune string        `query:"prune" enum:"none,subscriptions,all" default:"none"`
	Body  Configuration `extraBytes:"15728640"`
}

// Apply creates and change objects as declared.
//
// Compares retry policies, topics and event subscriptions with what is stored, and makes the changes. If an object has
// a mistake, the response is 400 with the mistakes of all objects, and nothing changes.
//
// Changes are made one by one: retry policies, topics, event subscriptions, and deletions last. A new endpoint must
// pass the validation handshake, as in a PUT. The first rejected change ends the request; `error` has its cause, and
// `applied` shows what was changed before.
//
// After 15 s no further change begins. Repeat the request for the rest.
//
// To make only the changes of a dry run, send its `etag` as If-Match. The response is 412, and nothing changes, if
// they would be others now. The rest of the changes has another etag, which is in the response.
func (m *Handlers) Apply(ctx context.Context, r *applyRequest) (*ConfigurationChanges, error) {
	p, err := m.plan(ctx, &r.Body, r.Prune)
	if err != nil {
		return nil, err
	}
	if r.IfMatch != nil && *r.IfMatch != "*" && !strings.Contains(*r.IfMatch, p.etag()) {
		return nil, api.Reject(http.StatusPreconditionFailed, "PreconditionFailed",
			"another client has changed the configuration since it was compared")
	}
	began, shown := time.Now(), &ConfigurationChanges{Changes: make([]ConfigurationChange, len(p.objects))}
	for i, o := range p.objects {
		if !r.DryRun && shown.Error == nil && o.Change != changeNone && time.Since(began) < applyTime {
			shown.Error = m.apply(ctx, o)
		}
		shown.Changes[i] = o.ConfigurationChange
	}
	shown.ETag = p.etag()
	return shown, nil
}

// apply makes one change, unless the object has another version than the compared one.
func (m *Handlers) apply(ctx context.Context, o *object) *api.Error {
	when := api.PutHeaders{IfNoneMatch: new("*")}
	if o.version != 0 {
		when = api.PutHeaders{IfMatchHeader: api.IfMatchHeader{IfMatch: new(api.ETagOf(o.version))}}
	}
	err := o.write(ctx, when)
	if err == nil {
		o.Applied = true
		return nil
	}
	rejected := api.ResponseTo(err, nil)
	if rejected == nil {
		m.Log.Error("a change of the configuration failed", "object", o.Title(), "error", err)
		rejected = api.Reject(http.StatusInternalServerError, api.CodeInternal, "internal error; the log has its cause")
	}
	return &api.Error{Code: rejected.Code, Message: rejected.Message, Details: api.Shown(rejected.Details)}
}
