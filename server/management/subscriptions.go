package management

import (
	"context"
	"errors"
	"math"

	"postrider/catalog"
	"postrider/policy"
	"postrider/postgres"
	"postrider/server/api"
)

// ListSubscriptionsRequest is the request GET /v1/topics/{topic}/subscriptions.
type ListSubscriptionsRequest struct {
	TopicPath
	api.PageParams
}

// ListSubscriptions responds to GET /v1/topics/{topic}/subscriptions.
func (m *Handlers) ListSubscriptions(
	ctx context.Context, r *ListSubscriptionsRequest,
) (*api.List[Subscription], error) {
	if !api.Storable(r.Topic) {
		return nil, api.TopicNotFound(r.Topic)
	}
	read := func(ctx context.Context, after string, limit int) ([]Subscription, error) {
		list, err := m.Parts.Subscriptions.List(ctx, r.Topic, after, limit)
		if errors.Is(err, postgres.ErrNotFound) {
			return nil, api.TopicNotFound(r.Topic)
		}
		subs := make([]Subscription, len(list))
		for i, sub := range list {
			subs[i] = m.subscriptionView(sub)
		}
		return subs, err
	}
	return api.ListByName(ctx, &r.PageParams, "/v1"+topicPath(r.Topic)+"/subscriptions", read,
		func(s Subscription) string { return s.Name })
}

// PutSubscriptionRequest is the request PUT /v1/topics/{topic}/subscriptions/{subscription}.
type PutSubscriptionRequest struct {
	SubscriptionPath
	api.PutHeaders
	DryRun bool `query:"dryRun"`
	Body   catalog.SubscriptionSpec
}

// PutSubscription responds to PUT /v1/topics/{topic}/subscriptions/{subscription}.
func (m *Handlers) PutSubscription(ctx context.Context, r *PutSubscriptionRequest) (*api.Put[Subscription], error) {
	when, err := r.Conditions()
	if err != nil {
		return nil, err
	}
	topic, err := m.topic(ctx, r.Topic)
	if err != nil {
		return nil, err
	}
	spec, err := m.checkSubscription(ctx, topic, r.Subscription, r.Body)
	if err != nil {
		return nil, err
	}
	if r.DryRun {
		shown, err := m.whatIf(ctx, topic, r.Subscription, spec)
		return &api.Put[Subscription]{Tagged: taggedSubscription(shown)}, err
	}
	sub, created, err := m.put(ctx, topic, r.Subscription, spec, when...)
	if err != nil {
		return nil, r.Rejected(m.putError(r.Topic, err), "event subscription", r.Subscription)
	}
	shown, err := m.counted(ctx, sub)
	return &api.Put[Subscription]{Tagged: taggedSubscription(shown), Created: created}, err
}

func taggedSubscription(s *Subscription) api.Tagged[Subscription] {
	if s == nil {
		return api.Tagged[Subscription]{}
	}
	return api.Tagged[Subscription]{ETag: s.Version.String(), Body: s}
}

// putError is the response to an error of the catalog.
func (m *Handlers) putError(topic string, err error) error {
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

// GetSubscription responds to GET /v1/topics/{topic}/subscriptions/{subscription}.
func (m *Handlers) GetSubscription(ctx context.Context, r *SubscriptionPath) (*api.Tagged[Subscription], error) {
	sub, err := m.subscription(ctx, r.Topic, r.Subscription)
	if err != nil {
		return nil, err
	}
	shown, err := m.counted(ctx, sub)
	return new(taggedSubscription(shown)), err
}

// DeleteSubscriptionRequest is the request DELETE /v1/topics/{topic}/subscriptions/{subscription}.
type DeleteSubscriptionRequest struct {
	SubscriptionPath
	api.IfMatchHeader
}

// DeleteSubscription responds to DELETE /v1/topics/{topic}/subscriptions/{subscription}.
func (m *Handlers) DeleteSubscription(ctx context.Context, r *DeleteSubscriptionRequest) (*api.NoContent, error) {
	when, err := r.Conditions()
	if err != nil {
		return nil, err
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	err = m.Parts.Subscriptions.Delete(ctx, r.Topic, r.Subscription, when...)
	return &api.NoContent{}, r.Rejected(r.rejected(err), "event subscription", r.Subscription)
}

// rules are what holds for its deliveries: the policy's ranges, or the topic's retention, may have changed since its
// limits were set.
func (m *Handlers) rules(s *catalog.Subscription) policy.Rules {
	p, known := m.Parts.Cache.Snapshot().Policy(s.RetryPolicy.Policy)
	if !known { // made on another node within the last second
		p = &policy.Policy{MaxMaxAttempts: math.MaxInt, MaxTTL: math.MaxInt64, RetryTransportErrors: true}
	}
	return p.Resolve(s.Overrides())
}

func textOrNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
