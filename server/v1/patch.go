package v1

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"postrider/internal/catalog"
	"postrider/internal/destination"
	"postrider/internal/endpointconf"
	"postrider/internal/message"
	"postrider/internal/postgres"
	"postrider/server/api"
)

const (
	// patchTries limits how often a patch is repeated after concurrent changes. Each repetition means that another
	// change succeeded; a hundred patches at once take about a hundred.
	patchTries = 200
	// patchHandshakes limits the handshakes of a patch: the client waits up to 15 s for each.
	patchHandshakes = 2
)

type patchSubscriptionRequest struct {
	SubscriptionPath
	api.IfMatchHeader
	Body json.RawMessage `schema:"SubscriptionPatch"`
}

// PatchSubscription changes settings of an event subscription.
//
// Applies a JSON merge patch (RFC 7396) to the stored settings. Null restores a default, absent members stay, and lists
// are replaced as a whole. The result is validated like a PUT.
//
// If `messageFormat` becomes `None`, the patch must have `endpointUrl`: the path of the stored one is a secret.
//
// A new `endpointUrl` or `messageFormat` resets `endpointValidation` to its default unless the patch has it. An
// endpoint that failed its handshake is called again only if the endpoint changes.
//
// The content type is application/merge-patch+json or application/json.
func (m *Handlers) PatchSubscription(
	ctx context.Context, r *patchSubscriptionRequest,
) (*Subscription, error) {
	when := r.Conditions()
	patch := r.Body
	if len(patch) == 0 {
		patch = json.RawMessage("{}")
	}
	if err := api.DecodeStrictly(patch, &catalog.SubscriptionSpec{}); err != nil {
		return nil, err
	}
	for tries, handshakes := 0, 0; tries < patchTries && handshakes < patchHandshakes; tries++ {
		before, after, shook, err := m.patch(ctx, r.Topic, r.Subscription, patch, when)
		switch late := errors.Is(err, postgres.ErrPrecondition); {
		case late && !allows(when, before.Version):
			return nil, r.Rejected(err, "event subscription", r.Subscription)
		case late && shook:
			handshakes++
			continue
		case late:
			continue
		case err != nil:
			return nil, err
		}
		return m.withHeld(ctx, after)
	}
	return nil, api.RejectConflict(api.ConflictCodeConcurrentChange,
		"other requests keep changing event subscription %q; retry later", r.Subscription)
}

// allows reports whether If-Match allows this version.
func allows(when []postgres.Condition, version postgres.Version) bool {
	return !slices.ContainsFunc(when,
		func(c postgres.Condition) bool { return c.Versions != nil && !slices.Contains(c.Versions, version) })
}

// patch applies a patch to the current version. ErrPrecondition: another request has changed it, or If-Match does not
// allow it. shook: a handshake was made.
func (m *Handlers) patch(
	ctx context.Context, topic, name string, patch json.RawMessage, when []postgres.Condition,
) (before, after *catalog.Subscription, shook bool, err error) {
	if before, err = m.Parts.Subscriptions.Get(ctx, topic, name); err != nil {
		return nil, nil, false, err
	}
	parent, err := m.Parts.Topic(ctx, topic)
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
	if err := m.checkTarget(ctx, topic, name, &spec); err != nil {
		return nil, nil, false, err
	}
	when = append(slices.Clone(when), postgres.Condition{Versions: []postgres.Version{before.Version}})
	after, err = m.Parts.Subscriptions.Patch(ctx, topic, name, spec, when...)
	if shook = errors.Is(err, postgres.ErrNotValidated); shook {
		after, _, err = m.putValidated(ctx, parent, name, spec, when...)
	}
	return before, after, shook, m.putError(topic, &spec, err)
}

// patched applies a JSON merge patch (RFC 7396) to the stored settings, secrets included. It first drops settings that
// belong to a setting in the patch.
func patched(stored catalog.SubscriptionSpec, patch json.RawMessage) (after catalog.SubscriptionSpec, err error) {
	var named struct {
		RetryPolicy           map[string]json.RawMessage
		EndpointURL           *string
		DeadLetterDestination struct{ EndpointType catalog.DeadLetterType }
		DeliveryConfiguration struct {
			DeliveryMode *catalog.DeliveryMode
			Queue        map[string]json.RawMessage
		}
		ClientCertificate struct{ Certificate *string }
		OAuth2            struct{ TokenURL, ClientID *string }
		MessageFormat     json.RawMessage
		Destination       *struct {
			EndpointType destination.Type
			Properties   struct{ ResourceID, ConnectionString *string }
		}
	}
	_ = json.Unmarshal(patch, &named) // DecodeStrictly has accepted it
	if named.EndpointURL != nil && *named.EndpointURL != stored.EndpointURL {
		stored.EndpointValidation, stored.PagerDutyRoutingKey = "", "" // belong to the old endpoint
	}
	if named.MessageFormat != nil {
		next := message.None
		_ = json.Unmarshal(named.MessageFormat, &next) // null leaves the default
		if next != cmp.Or(stored.MessageFormat, message.None) {
			stored.EndpointValidation, stored.PagerDutyRoutingKey = "", "" // belong to the old format
		}
		if stored.MessageFormat.IsMessage() && !next.IsMessage() {
			stored.EndpointURL = "" // its path is a secret of a message's endpoint only, and would be shown
		}
	}
	if next := named.Destination; next != nil {
		if kind := cmp.Or(next.EndpointType, stored.Destination.Type()); kind != stored.Destination.Type() {
			stored.Destination, stored.EndpointValidation, stored.EndpointURL = nil, "", "" // belong to the other type
		}
		stored.Destination = stored.Destination.WithoutSecrets() // kept if the patch has none, see KeepSecrets
		if named := next.Properties; stored.Destination != nil && (named.ResourceID != nil || named.ConnectionString != nil) {
			p := stored.Destination.Properties // a copy; both name the whole target
			p.Endpoint, p.EntityName, p.QueueName = "", "", ""
			if named.ConnectionString != nil {
				p.ResourceID, p.SharedAccessKeyName = "", ""
			}
		}
	}
	stored.Connection = dropSecrets(stored.Connection, named.OAuth2.TokenURL, named.OAuth2.ClientID,
		named.ClientCertificate.Certificate)
	kind := named.DeadLetterDestination.EndpointType
	if d := stored.DeadLetterDestination; d != nil && kind != "" && kind != d.EndpointType {
		stored.DeadLetterDestination = &catalog.DeadLetterDestination{EndpointType: d.EndpointType}
	}
	if mode := named.DeliveryConfiguration.DeliveryMode; mode != nil && (*mode == catalog.ModeQueue) != stored.Pulled() {
		stored.DeliveryConfiguration, stored.EndpointValidation = nil, "" // belong to the other mode
		if *mode == catalog.ModeQueue {
			stored.Destination = nil
		}
	}
	names := func(object map[string]json.RawMessage, name string) bool { _, found := object[name]; return found }
	queue := named.DeliveryConfiguration.Queue
	if names(named.RetryPolicy, "maxDeliveryCount") || names(queue, "maxDeliveryCount") {
		stored.RetryPolicy.MaxDeliveryAttempts = nil
	}
	if names(named.RetryPolicy, "eventTimeToLive") || names(queue, "eventTimeToLive") {
		stored.RetryPolicy.EventTimeToLiveInMinutes = nil
	}
	if names(queue, "deadLetterDestination") || names(queue, "deadLetterDestinationWithResourceIdentity") {
		stored.DeadLetterDestination = nil
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

// dropSecrets drops secrets that belong to a setting in the patch: a client secret to its token URL and client id, a
// private key to its certificate.
func dropSecrets(c endpointconf.Connection, tokenURL, clientID, certificate *string) endpointconf.Connection {
	open := c.WithoutSecrets()
	if o := c.OAuth2; o != nil &&
		(tokenURL != nil && *tokenURL != o.TokenURL || clientID != nil && *clientID != o.ClientID) {
		c.OAuth2 = open.OAuth2
	}
	if c.ClientCertificate != nil && certificate != nil {
		c.ClientCertificate = open.ClientCertificate // the stored key is kept later if it fits
	}
	return c
}
