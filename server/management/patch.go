package management

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"postrider/catalog"
	"postrider/policy"
	"postrider/postgres"
	"postrider/server/api"
)

// patchTries is how often a patch is made anew because others changed the event subscription meanwhile. Whenever one
// comes too late another has succeeded; a hundred at once take about that many.
const patchTries = 200

// patchHandshakes is how many handshakes one patch makes at most, for the same cause: its client waits up to 15 s for
// each, and two are what an answer may take.
const patchHandshakes = 2

// PatchSubscriptionRequest is the request PATCH /v1/topics/{topic}/subscriptions/{subscription}.
type PatchSubscriptionRequest struct {
	SubscriptionPath
	api.IfMatchHeader
	Body SubscriptionPatch
}

// SubscriptionPatch is a JSON merge patch of an event subscription's settings (RFC 7396).
type SubscriptionPatch json.RawMessage

// UnmarshalJSON accepts what could be settings: null is a value of any of them.
func (p *SubscriptionPatch) UnmarshalJSON(text []byte) error {
	*p = append((*p)[:0], text...) // the decoder reuses its memory
	return nil
}

// PatchSubscription responds to PATCH /v1/topics/{topic}/subscriptions/{subscription}.
func (m *Handlers) PatchSubscription(
	ctx context.Context, r *PatchSubscriptionRequest,
) (*api.Tagged[Subscription], error) {
	when, err := r.Conditions()
	if err != nil {
		return nil, err
	}
	patch := json.RawMessage("{}")
	if len(r.Body) > 0 {
		patch = json.RawMessage(r.Body)
	}
	// Unknown members, members given twice and values of a wrong type are the errors of a PUT.
	if err := api.DecodeStrictly(patch, &catalog.SubscriptionSpec{}); err != nil {
		return nil, err
	}
	for tries, handshakes := 0, 0; tries < patchTries && handshakes < patchHandshakes; tries++ {
		before, after, shook, err := m.patch(ctx, r.Topic, r.Subscription, patch, when)
		switch late := errors.Is(err, postgres.ErrPrecondition); {
		case late && !named(when, before.Version):
			return nil, r.Rejected(err, "event subscription", r.Subscription)
		case late && shook:
			handshakes++
			continue
		case late:
			continue
		case err != nil:
			return nil, err
		}
		shown, err := m.counted(ctx, after)
		return new(taggedSubscription(shown)), err
	}
	return nil, api.RejectConflict(api.ConflictCodeConcurrentChange,
		"event subscription %q is changed by others again and again; try again", r.Subscription)
}

// named reports whether what If-Match asks for holds in this version.
func named(when []postgres.Condition, version postgres.Version) bool {
	return !slices.ContainsFunc(when,
		func(c postgres.Condition) bool { return c.Versions != nil && !slices.Contains(c.Versions, version) })
}

// patch changes an event subscription as it is now. ErrPrecondition: somebody else did meanwhile, or it is in no
// version that is asked for. shook: a handshake was made for it.
func (m *Handlers) patch(
	ctx context.Context, topic, name string, patch json.RawMessage, when []postgres.Condition,
) (before, after *catalog.Subscription, shook bool, err error) {
	if before, err = m.subscription(ctx, topic, name); err != nil {
		return nil, nil, false, err
	}
	parent, err := m.topic(ctx, topic)
	if err != nil {
		return nil, nil, false, err
	}
	stated, err := patched(before.Stated, patch)
	if err != nil {
		return nil, nil, false, err
	}
	spec, err := m.checkSubscription(ctx, parent, name, stated)
	if err != nil {
		return nil, nil, false, err
	}
	when = append(slices.Clone(when), postgres.Condition{Versions: []postgres.Version{before.Version}})
	after, err = m.Parts.Subscriptions.Patch(ctx, topic, name, spec, when...)
	if shook = errors.Is(err, postgres.ErrNotValidated); shook {
		after, _, err = m.putValidated(ctx, parent, name, spec, when...)
	}
	return before, after, shook, m.putError(topic, err)
}

// patched applies a JSON merge patch (RFC 7396) to the settings as they are stored, secrets included. A few settings
// belong to others, and are dropped when a patch replaces those.
func patched(stored catalog.SubscriptionSpec, patch json.RawMessage) (after catalog.SubscriptionSpec, err error) {
	var named struct {
		RetryPolicy           map[string]json.RawMessage
		EndpointURL           *string
		DeadLetterDestination struct{ EndpointType catalog.DeadLetterType }
		ClientCertificate     struct{ Certificate *string }
		OAuth2                struct{ TokenURL, ClientID *string }
	}
	_ = json.Unmarshal(patch, &named) // DecodeStrictly has accepted it
	if named.EndpointURL != nil && *named.EndpointURL != stored.EndpointURL {
		stored.EndpointValidation = "" // no operator has vouched for the new endpoint
	}
	stored.Connection = withholdSecrets(stored.Connection, named.OAuth2.TokenURL, named.OAuth2.ClientID,
		named.ClientCertificate.Certificate)
	kind := named.DeadLetterDestination.EndpointType
	if d := stored.DeadLetterDestination; d != nil && kind != "" && kind != d.EndpointType {
		stored.DeadLetterDestination = &catalog.DeadLetterDestination{EndpointType: d.EndpointType}
	}
	if _, other := named.RetryPolicy["maxDeliveryCount"]; other {
		stored.RetryPolicy.MaxDeliveryAttempts = nil
	}
	if _, other := named.RetryPolicy["eventTimeToLive"]; other {
		stored.RetryPolicy.EventTimeToLiveInMinutes = nil
	}
	text, err := json.Marshal(stored)
	if err != nil {
		return after, err
	}
	if text, err = jsonpatch.MergePatch(text, patch); err != nil {
		return after, err
	}
	return after, api.DecodeStrictly(text, &after)
}

// withholdSecrets drops what a patch must not keep: a client secret belongs to its token URL and its client, and a
// private key to its certificate.
func withholdSecrets(c policy.Connection, tokenURL, clientID, certificate *string) policy.Connection {
	open := c.WithoutSecrets()
	if o := c.OAuth2; o != nil &&
		(tokenURL != nil && *tokenURL != o.TokenURL || clientID != nil && *clientID != o.ClientID) {
		c.OAuth2 = open.OAuth2
	}
	if c.ClientCertificate != nil && certificate != nil {
		c.ClientCertificate = open.ClientCertificate // the stored one is kept if it fits
	}
	return c
}
