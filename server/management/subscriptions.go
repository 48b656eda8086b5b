package management

import (
	"cmp"
	"context"
	"errors"
	"math"
	"time"

	"postrider/catalog"
	"postrider/policy"
	"postrider/policy/filter"
	"postrider/postgres"
	"postrider/server/api"
)

// ListSubscriptions answers GET /v1/topics/{topic}/subscriptions.
func (m *Handlers) ListSubscriptions(
	ctx context.Context, r api.ListSubscriptionsRequestObject,
) (api.ListSubscriptionsResponseObject, error) {
	page, err := api.ReadPage(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	if !api.Storable(r.Topic) {
		return nil, api.TopicNotFound(r.Topic)
	}
	list, err := m.Parts.Subscriptions.List(ctx, r.Topic, page.After, page.Limit+1)
	if errors.Is(err, postgres.ErrNotFound) {
		return nil, api.TopicNotFound(r.Topic)
	}
	if err != nil {
		return nil, err
	}
	answer := api.ListSubscriptions200JSONResponse{Value: []api.Subscription{}}
	shown, next := api.Cut(page, list, "/v1"+topicPath(r.Topic)+"/subscriptions",
		func(s *catalog.Subscription) string { return s.Name })
	for _, sub := range shown {
		answer.Value = append(answer.Value, m.subscriptionJSON(sub))
	}
	answer.NextLink = next
	return answer, nil
}

// PutSubscription answers PUT /v1/topics/{topic}/subscriptions/{subscription}.
func (m *Handlers) PutSubscription(
	ctx context.Context, r api.PutSubscriptionRequestObject,
) (api.PutSubscriptionResponseObject, error) {
	when, err := api.Conditions(r.Params.IfMatch, r.Params.IfNoneMatch)
	if err != nil {
		return nil, err
	}
	topic, err := m.topic(ctx, r.Topic)
	if err != nil {
		return nil, err
	}
	spec, err := m.checkSubscription(ctx, topic, r.Subscription, optional(r.Body, catalog.SubscriptionSpec{}))
	if err != nil {
		return nil, err
	}
	if optional(r.Params.DryRun, false) {
		shown, err := m.whatIf(ctx, topic, r.Subscription, spec)
		if err != nil {
			return nil, err
		}
		return api.PutSubscription200JSONResponse{
			Body: shown, Headers: api.PutSubscription200ResponseHeaders{ETag: shown.ETag},
		}, nil
	}
	sub, made, err := m.put(ctx, topic, r.Subscription, spec, when...)
	if errors.Is(err, postgres.ErrPrecondition) {
		return nil, api.RefusePrecondition("event subscription", r.Subscription, r.Params.IfMatch)
	}
	if err := m.putRefused(r.Topic, err); err != nil {
		return nil, err
	}
	shown, err := m.counted(ctx, sub)
	switch {
	case err != nil:
		return nil, err
	case made:
		return api.PutSubscription201JSONResponse{
			Body: shown, Headers: api.PutSubscription201ResponseHeaders{ETag: shown.ETag},
		}, nil
	}
	return api.PutSubscription200JSONResponse{
		Body: shown, Headers: api.PutSubscription200ResponseHeaders{ETag: shown.ETag},
	}, nil
}

// putRefused words what the store refused.
func (m *Handlers) putRefused(topic string, err error) error {
	var mistake *policy.ValidationError
	switch {
	case errors.As(err, &mistake): // a secret header that was to be kept was removed since it was looked at
		return api.Invalid(mistake.Field, "%s", mistake.Message)
	case errors.Is(err, catalog.ErrNoPolicy): // deleted since it was looked at
		return m.unknownPolicy()
	case errors.Is(err, postgres.ErrNotFound):
		return api.TopicNotFound(topic)
	}
	return err
}

// subscription reads one; what there cannot be is not asked for.
func (m *Handlers) subscription(ctx context.Context, topic, name string) (*catalog.Subscription, error) {
	if !api.Storable(topic) || !api.Storable(name) {
		return nil, api.SubscriptionNotFound(topic, name)
	}
	sub, err := m.Parts.Subscriptions.Get(ctx, topic, name)
	if errors.Is(err, postgres.ErrNotFound) {
		return nil, api.SubscriptionNotFound(topic, name)
	}
	return sub, err
}

// GetSubscription answers GET /v1/topics/{topic}/subscriptions/{subscription}.
func (m *Handlers) GetSubscription(
	ctx context.Context, r api.GetSubscriptionRequestObject,
) (api.GetSubscriptionResponseObject, error) {
	sub, err := m.subscription(ctx, r.Topic, r.Subscription)
	if err != nil {
		return nil, err
	}
	shown, err := m.counted(ctx, sub)
	if err != nil {
		return nil, err
	}
	return api.GetSubscription200JSONResponse{
		Body: shown, Headers: api.GetSubscription200ResponseHeaders{ETag: shown.ETag},
	}, nil
}

// DeleteSubscription answers DELETE /v1/topics/{topic}/subscriptions/{subscription}.
func (m *Handlers) DeleteSubscription(
	ctx context.Context, r api.DeleteSubscriptionRequestObject,
) (api.DeleteSubscriptionResponseObject, error) {
	when, err := api.Conditions(r.Params.IfMatch, nil)
	if err != nil {
		return nil, err
	}
	if !api.Storable(r.Topic) || !api.Storable(r.Subscription) {
		return nil, api.SubscriptionNotFound(r.Topic, r.Subscription)
	}
	err = m.Parts.Subscriptions.Delete(ctx, r.Topic, r.Subscription, when...)
	switch {
	case errors.Is(err, postgres.ErrNotFound):
		return nil, api.SubscriptionNotFound(r.Topic, r.Subscription)
	case errors.Is(err, postgres.ErrPrecondition):
		return nil, api.RefusePrecondition("event subscription", r.Subscription, r.Params.IfMatch)
	case err != nil:
		return nil, err
	}
	return api.DeleteSubscription204Response{}, nil
}

// subscriptionJSON shows an event subscription with its effective settings and without its secrets.
func (m *Handlers) subscriptionJSON(s *catalog.Subscription) api.Subscription {
	rules := m.rules(s)
	batch := s.Batch()
	shown := api.Subscription{
		Topic: s.Topic, Name: s.Name, EndpointBaseURL: s.EndpointBaseURL, SubscriptionSpec: s.SubscriptionSpec,
		Filter: filterJSON(s.Filter), DeadLetterDestination: destinationJSON(s, rules.DeadLetter),
		DeliveryAttributeMappings: attributesJSON(s.DeliveryAttributes, false), Signing: m.signingJSON(s),
		MinimumTLSVersionAllowed: cmp.Or(s.MinimumTLSVersion, policy.TLS12),
		CertificateAuthorities:   textOrNull(s.CertificateAuthorities),
		ETag:                     api.ETagOf(s.Version), ProvisioningState: s.ProvisioningState, Hold: holdJSON(s.Hold),
		CreatedAt: s.CreatedAt.UTC(), UpdatedAt: s.UpdatedAt.UTC(),
	}
	open := s.Connection.WithoutSecrets()
	shown.ClientCertificate = open.ClientCertificate
	if o := open.OAuth2; o != nil {
		shown.OAuth2 = &api.OAuth2{TokenUrl: o.TokenURL, ClientId: o.ClientID, Scope: textOrNull(o.Scope)}
	}
	effective := &shown.SubscriptionSpec
	effective.EndpointURL = ""
	effective.RetryPolicy.MaxDeliveryAttempts = limitOf(rules.Limits.MaxAttempts)
	effective.RetryPolicy.EventTimeToLiveInMinutes = new(minutes(rules.Limits.TTL))
	if s.EventRetentionInDays > 0 { // of a namespace topic
		effective.RetryPolicy.MaxDeliveryCount = effective.RetryPolicy.MaxDeliveryAttempts
		effective.RetryPolicy.EventTimeToLive = new(span(rules.Limits.TTL))
	}
	effective.MaxEventsPerBatch, effective.PreferredBatchSizeInKilobytes = &batch.MaxEvents, &batch.PreferredKilobytes
	effective.HonorRetryAfter = &rules.Policy.HonorRetryAfter
	effective.ProbationAction = &rules.Policy.Probation.Action
	effective.RetryTransportErrors = &rules.Policy.RetryTransportErrors
	effective.Labels = append([]string{}, s.Labels...)
	return shown
}

// destinationJSON is the effective dead-letter destination; it has no secrets.
func destinationJSON(s *catalog.Subscription, kept bool) catalog.DeadLetterDestination {
	switch d := s.DeadLetterDestination; {
	case !kept:
		return catalog.DeadLetterDestination{EndpointType: catalog.DeadLetterNone}
	case d != nil && d.EndpointType.Outside():
		return *d
	}
	return catalog.DeadLetterDestination{EndpointType: catalog.DeadLetterRows}
}

// rules are what holds for its deliveries: the policy's ranges, or the topic's retention, may have changed since its
// limits were set.
func (m *Handlers) rules(s *catalog.Subscription) policy.Rules {
	p, known := m.Parts.Cache.Snapshot().Policy(s.RetryPolicy.Policy)
	if !known { // made on another node within the last second
		p = &policy.Policy{MaxMaxAttempts: math.MaxInt, MaxTTL: math.MaxInt64, RetryTransportErrors: true}
	}
	return p.Resolve(s.Wishes())
}

func filterJSON(f filter.Filter) api.Filter {
	types := f.IncludedEventTypes
	if len(types) == 0 {
		types = []string{"All"}
	}
	return api.Filter{
		IncludedEventTypes: types, SubjectBeginsWith: f.SubjectBeginsWith, SubjectEndsWith: f.SubjectEndsWith,
		IsSubjectCaseSensitive: f.IsSubjectCaseSensitive, AdvancedFilters: advancedFiltersJSON(f.AdvancedFilters),
		EnableAdvancedFilteringOnArrays: f.EnableAdvancedFilteringOnArrays,
	}
}

func advancedFiltersJSON(filters []filter.AdvancedFilter) []api.AdvancedFilter {
	shown := make([]api.AdvancedFilter, len(filters))
	for i, a := range filters {
		shown[i] = api.AdvancedFilter{OperatorType: a.OperatorType, Key: a.Key, Value: a.Value, Values: a.Values}
	}
	return shown
}

func textOrNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func utcOrNull(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	utc := t.UTC()
	return &utc
}
