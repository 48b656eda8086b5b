package management

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"postrider/catalog"
	"postrider/policy/filter"
	"postrider/postgres"
	"postrider/server/api"
)

// patchTries is how often a patch is made anew because others changed the event subscription meanwhile. Whenever one
// comes too late another has succeeded; a hundred at once take about that many.
const patchTries = 200

// patchHandshakes is how many handshakes one patch makes at most, for the same cause: its client waits up to 15 s for
// each, and two are what an answer may take.
const patchHandshakes = 2

// PatchSubscription answers PATCH /v1/topics/{topic}/subscriptions/{subscription}.
func (m *Handlers) PatchSubscription(
	ctx context.Context, r api.PatchSubscriptionRequestObject,
) (api.PatchSubscriptionResponseObject, error) {
	when, err := api.Conditions(r.Params.IfMatch, nil)
	if err != nil {
		return nil, err
	}
	patch := json.RawMessage("{}")
	if r.Body != nil && len(*r.Body) > 0 {
		patch = *r.Body
	}
	// Unknown names, names given twice and values of a wrong kind are told as of a put; null is of any kind.
	if err := api.DecodeStrictly(patch, &api.SubscriptionSettings{}); err != nil {
		return nil, err
	}
	for tries, handshakes := 0, 0; tries < patchTries && handshakes < patchHandshakes; tries++ {
		before, after, shook, err := m.patch(ctx, r.Topic, r.Subscription, patch, when)
		switch late := errors.Is(err, postgres.ErrPrecondition); {
		case late && !named(when, before.Version):
			return nil, api.RefusePrecondition("event subscription", r.Subscription, r.Params.IfMatch)
		case late && shook:
			handshakes++
			continue
		case late:
			continue
		case err != nil:
			return nil, err
		}
		shown, err := m.counted(ctx, after)
		if err != nil {
			return nil, err
		}
		return api.PatchSubscription200JSONResponse{
			Body: shown, Headers: api.PatchSubscription200ResponseHeaders{ETag: shown.Etag},
		}, nil
	}
	return nil, api.RefuseConflict(api.ConflictCodeConcurrentChange,
		"event subscription %q is changed by others again and again; try again", r.Subscription)
}

// named reports whether what If-Match asks for holds in this version.
func named(when []postgres.Condition, version int64) bool {
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
	settings, err := patched(&before.SubscriptionSpec, patch)
	if err != nil {
		return nil, nil, false, err
	}
	spec, err := m.subscriptionSpec(ctx, parent, name, settings)
	if err != nil {
		return nil, nil, false, err
	}
	when = append(slices.Clone(when), postgres.Condition{Versions: []int64{before.Version}})
	after, err = m.Parts.Subscriptions.Patch(ctx, topic, name, spec, when...)
	if shook = errors.Is(err, postgres.ErrNotValidated); shook {
		after, _, err = m.putValidated(ctx, parent, name, spec, when...)
	}
	return before, after, shook, m.putRefused(topic, err)
}

// patched are the settings that a patch makes of those stated. Whether an endpoint is validated is judged anew with
// another endpoint, as of a put: nobody has vouched for that one.
func patched(spec *catalog.SubscriptionSpec, patch json.RawMessage) (*api.SubscriptionSettings, error) {
	stated := statedSettings(spec)
	var named struct {
		RetryPolicy map[string]json.RawMessage
		EndpointURL *string
		DeadLetter  struct {
			EndpointType api.DeadLetterDestinationEndpointType
		} `json:"deadLetterDestination"`
		ClientCertificate struct{ Certificate *string }
		OAuth2            struct{ TokenURL, ClientID *string }
	}
	_ = json.Unmarshal(patch, &named)
	if named.EndpointURL != nil && *named.EndpointURL != spec.EndpointURL {
		stated.EndpointValidation = nil
	}
	withholdSecrets(stated, named.OAuth2.TokenURL, named.OAuth2.ClientID, named.ClientCertificate.Certificate)
	if kind := named.DeadLetter.EndpointType; kind != "" && stated.DeadLetterDestination != nil &&
		kind != stated.DeadLetterDestination.EndpointType {
		stated.DeadLetterDestination.Properties = nil // those of another kind of destination
	}
	if _, other := named.RetryPolicy["maxDeliveryCount"]; other {
		stated.RetryPolicy.MaxDeliveryAttempts = nil
	}
	if _, other := named.RetryPolicy["eventTimeToLive"]; other {
		stated.RetryPolicy.EventTimeToLiveInMinutes = nil
	}
	text, err := plainJSON(stated)
	if err != nil {
		return nil, err
	}
	if text, err = merge(text, patch); err != nil {
		return nil, err
	}
	settings := new(api.SubscriptionSettings)
	return settings, api.DecodeStrictly(text, settings)
}

// statedSettings are an event subscription's settings as they were put. What was left out and has a default of its own
// by now, such as the delivery schema, is stated.
func statedSettings(s *catalog.SubscriptionSpec) *api.SubscriptionSettings {
	kind, schema, behavior, validation := api.EndpointKind(s.EndpointKind), api.DeliverySchema(s.EventDeliverySchema),
		api.Behavior(s.Behavior), api.EndpointValidation(s.EndpointValidation)
	stated := &api.SubscriptionSettings{
		EndpointUrl: s.EndpointURL, EndpointKind: &kind, EventDeliverySchema: &schema, Filter: statedFilter(&s.Filter),
		RetryPolicy: &api.RetryPolicySettings{
			Policy: &s.RetryPolicy, MaxDeliveryAttempts: s.MaxDeliveryAttempts,
			EventTimeToLiveInMinutes: s.EventTimeToLiveInMinutes,
		},
		MaxEventsPerBatch: s.MaxEventsPerBatch, PreferredBatchSizeInKilobytes: s.PreferredBatchSizeInKilobytes,
		MaxConcurrentDeliveries: s.MaxConcurrentDeliveries,
		EndpointValidation:      &validation, Behavior: &behavior, HonorRetryAfter: s.HonorRetryAfter,
		ProbationAction: (*api.ProbationAction)(s.ProbationAction), RetryTransportErrors: s.RetryTransportErrors,
		Labels: &s.Labels, Signing: &api.SigningSettings{Enabled: &s.Signed},
		DeliveryAttributeMappings: statedAttributes(s.DeliveryAttributes),
	}
	stateConnection(stated, &s.Connection)
	if s.DeadLetter != catalog.DeadLetterUnset {
		destination := destinationJSON(s.DeadLetter, s.DeadLetterProperties)
		stated.DeadLetterDestination = &destination
	}
	if s.ExpirationTimeUTC != nil {
		at := s.ExpirationTimeUTC.UTC().Format(time.RFC3339Nano)
		stated.ExpirationTimeUtc = &at
	}
	return stated
}

func statedFilter(f *filter.Filter) *api.FilterSettings {
	filters := advancedFiltersJSON(f.AdvancedFilters)
	return &api.FilterSettings{
		IncludedEventTypes: &f.IncludedEventTypes, SubjectBeginsWith: &f.SubjectBeginsWith,
		SubjectEndsWith:        &f.SubjectEndsWith,
		IsSubjectCaseSensitive: &f.IsSubjectCaseSensitive, AdvancedFilters: &filters,
		EnableAdvancedFilteringOnArrays: &f.EnableAdvancedFilteringOnArrays,
	}
}

// merge applies a JSON merge patch (RFC 7396, section 2). Values are copied as they are written: no number is read.
func merge(target, patch json.RawMessage) (json.RawMessage, error) {
	var changes map[string]json.RawMessage
	if json.Unmarshal(patch, &changes) != nil || changes == nil {
		return patch, nil // no object: it takes the target's place
	}
	members := map[string]json.RawMessage{}
	if json.Unmarshal(target, &members) != nil || members == nil {
		members = map[string]json.RawMessage{}
	}
	for name, change := range changes {
		if string(change) == "null" {
			delete(members, name)
			continue
		}
		merged, err := merge(members[name], change)
		if err != nil {
			return nil, err
		}
		members[name] = merged
	}
	return plainJSON(members)
}

// plainJSON writes JSON without the escapes that are for HTML: text is kept as it was put.
func plainJSON(v any) (json.RawMessage, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return text.Bytes(), err
}
