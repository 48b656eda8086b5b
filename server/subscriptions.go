package server

import (
	"context"
	"errors"
	"math"
	"time"

	"postrider/policy"
	"postrider/policy/filter"
	"postrider/store"
)

// ListSubscriptions answers GET /v1/topics/{topic}/subscriptions.
func (m *management) ListSubscriptions(ctx context.Context, r ListSubscriptionsRequestObject) (ListSubscriptionsResponseObject, error) {
	page, err := readPage(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	if !storable(r.Topic) {
		return nil, topicNotFound(r.Topic)
	}
	list, err := m.store.ListSubscriptions(ctx, r.Topic, page.after, page.limit+1)
	if errors.Is(err, store.ErrNotFound) {
		return nil, topicNotFound(r.Topic)
	}
	if err != nil {
		return nil, err
	}
	answer := ListSubscriptions200JSONResponse{Value: []Subscription{}}
	shown, next := cut(page, list, "/v1"+topicPath(r.Topic)+"/subscriptions", func(s *store.Subscription) string { return s.Name })
	for _, sub := range shown {
		answer.Value = append(answer.Value, m.subscriptionJSON(sub))
	}
	answer.NextLink = next
	return answer, nil
}

// PutSubscription answers PUT /v1/topics/{topic}/subscriptions/{subscription}.
func (m *management) PutSubscription(ctx context.Context, r PutSubscriptionRequestObject) (PutSubscriptionResponseObject, error) {
	when, err := conditions(r.Params.IfMatch, r.Params.IfNoneMatch)
	if err != nil {
		return nil, err
	}
	topic, err := m.topic(ctx, r.Topic)
	if err != nil {
		return nil, err
	}
	spec, err := m.subscriptionSpec(ctx, topic, r.Subscription, r.Body)
	if err != nil {
		return nil, err
	}
	if optional(r.Params.DryRun, false) {
		shown, err := m.whatIf(ctx, topic, r.Subscription, spec)
		if err != nil {
			return nil, err
		}
		return PutSubscription200JSONResponse{Body: shown, Headers: PutSubscription200ResponseHeaders{ETag: shown.Etag}}, nil
	}
	sub, made, err := m.put(ctx, topic, r.Subscription, spec, when...)
	if errors.Is(err, store.ErrPrecondition) {
		return nil, preconditionFailed("event subscription", r.Subscription, r.Params.IfMatch)
	}
	if err := m.putRefused(r.Topic, err); err != nil {
		return nil, err
	}
	shown, err := m.counted(ctx, sub)
	switch {
	case err != nil:
		return nil, err
	case made:
		return PutSubscription201JSONResponse{Body: shown, Headers: PutSubscription201ResponseHeaders{ETag: shown.Etag}}, nil
	}
	return PutSubscription200JSONResponse{Body: shown, Headers: PutSubscription200ResponseHeaders{ETag: shown.Etag}}, nil
}

// putRefused words what the store refused.
func (m *management) putRefused(topic string, err error) error {
	var mistake *policy.ValidationError
	switch {
	case errors.As(err, &mistake): // a secret header that was to be kept was removed since it was looked at
		return invalid(mistake.Field, "%s", mistake.Message)
	case errors.Is(err, store.ErrNoPolicy): // deleted since it was looked at
		return m.unknownPolicy()
	case errors.Is(err, store.ErrNotFound):
		return topicNotFound(topic)
	}
	return err
}

// subscription reads one; what there cannot be is not asked for.
func (m *management) subscription(ctx context.Context, topic, name string) (*store.Subscription, error) {
	if !storable(topic) || !storable(name) {
		return nil, subscriptionNotFound(topic, name)
	}
	sub, err := m.store.SubscriptionOf(ctx, topic, name)
	if errors.Is(err, store.ErrNotFound) {
		return nil, subscriptionNotFound(topic, name)
	}
	return sub, err
}

// GetSubscription answers GET /v1/topics/{topic}/subscriptions/{subscription}.
func (m *management) GetSubscription(ctx context.Context, r GetSubscriptionRequestObject) (GetSubscriptionResponseObject, error) {
	sub, err := m.subscription(ctx, r.Topic, r.Subscription)
	if err != nil {
		return nil, err
	}
	shown, err := m.counted(ctx, sub)
	if err != nil {
		return nil, err
	}
	return GetSubscription200JSONResponse{Body: shown, Headers: GetSubscription200ResponseHeaders{ETag: shown.Etag}}, nil
}

// DeleteSubscription answers DELETE /v1/topics/{topic}/subscriptions/{subscription}.
func (m *management) DeleteSubscription(ctx context.Context, r DeleteSubscriptionRequestObject) (DeleteSubscriptionResponseObject, error) {
	when, err := conditions(r.Params.IfMatch, nil)
	if err != nil {
		return nil, err
	}
	if !storable(r.Topic) || !storable(r.Subscription) {
		return nil, subscriptionNotFound(r.Topic, r.Subscription)
	}
	err = m.store.DeleteSubscription(ctx, r.Topic, r.Subscription, when...)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, subscriptionNotFound(r.Topic, r.Subscription)
	case errors.Is(err, store.ErrPrecondition):
		return nil, preconditionFailed("event subscription", r.Subscription, r.Params.IfMatch)
	case err != nil:
		return nil, err
	}
	return DeleteSubscription204Response{}, nil
}

// subscriptionJSON shows an event subscription with its effective settings and without its endpoint's secrets.
func (m *management) subscriptionJSON(s *store.Subscription) Subscription {
	rules := m.rules(s)
	destination := s.DeadLetter
	switch {
	case !rules.DeadLetter:
		destination = store.DeadLetterNone
	case !destination.Outside():
		destination = store.DeadLetterRows
	}
	batch := s.Batch()
	shown := Subscription{
		Topic: s.Topic, Name: s.Name, EndpointBaseUrl: s.EndpointBaseURL, EndpointKind: EndpointKind(s.EndpointKind),
		EventDeliverySchema: DeliverySchema(s.EventDeliverySchema), RetryPolicy: retryPolicyJSON(s, rules.Limits), Filter: filterJSON(s.Filter),
		DeadLetterDestination: destinationJSON(destination, s.DeadLetterProperties),
		MaxEventsPerBatch:     batch.MaxEvents, PreferredBatchSizeInKilobytes: batch.PreferredKilobytes, MaxConcurrentDeliveries: s.MaxConcurrentDeliveries,
		Behavior: Behavior(s.Behavior), HonorRetryAfter: rules.Policy.HonorRetryAfter, ProbationAction: ProbationAction(rules.Policy.Probation.Action),
		RetryTransportErrors: rules.Policy.RetryTransportErrors, Labels: append([]string{}, s.Labels...), ExpirationTimeUtc: utcOrNull(s.ExpirationTimeUTC),
		Etag:                      etagOf(s.Version),
		DeliveryAttributeMappings: attributesJSON(s.DeliveryAttributes, false),
		Signing:                   m.signingJSON(s),
		ProvisioningState:         SubscriptionProvisioningState(s.ProvisioningState), EndpointValidation: EndpointValidation(s.EndpointValidation), Hold: holdJSON(s.Hold), CreatedAt: s.CreatedAt.UTC(), UpdatedAt: s.UpdatedAt.UTC(),
	}
	showConnection(&shown, &s.Connection)
	return shown
}

// rules are what holds for its deliveries: the policy's ranges, or the topic's retention, may have changed since its limits were set.
func (m *management) rules(s *store.Subscription) policy.Rules {
	p, known := m.store.Catalogue().Policy(s.RetryPolicy)
	if !known { // made on another node within the last second
		p = &policy.Policy{MaxMaxAttempts: math.MaxInt, MaxTTL: math.MaxInt64, RetryTransportErrors: true}
	}
	return p.Resolve(s.Wishes())
}

func retryPolicyJSON(s *store.Subscription, limits policy.Limits) RetryPolicy {
	shown := RetryPolicy{Policy: s.RetryPolicy, MaxDeliveryAttempts: limitOf(limits.MaxAttempts), EventTimeToLiveInMinutes: minutes(limits.TTL)}
	if s.EventRetentionInDays > 0 { // of a namespace topic
		ttl := span(limits.TTL)
		shown.MaxDeliveryCount, shown.EventTimeToLive = shown.MaxDeliveryAttempts, &ttl
	}
	return shown
}

func filterJSON(f filter.Filter) Filter {
	types := f.IncludedEventTypes
	if len(types) == 0 {
		types = []string{"All"}
	}
	return Filter{
		IncludedEventTypes: types, SubjectBeginsWith: f.SubjectBeginsWith, SubjectEndsWith: f.SubjectEndsWith,
		IsSubjectCaseSensitive: f.IsSubjectCaseSensitive, AdvancedFilters: advancedFiltersJSON(f.AdvancedFilters),
		EnableAdvancedFilteringOnArrays: f.EnableAdvancedFilteringOnArrays,
	}
}

func advancedFiltersJSON(filters []filter.AdvancedFilter) []AdvancedFilter {
	shown := make([]AdvancedFilter, len(filters))
	for i, a := range filters {
		shown[i] = AdvancedFilter{OperatorType: a.OperatorType, Key: a.Key, Value: a.Value, Values: a.Values}
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
