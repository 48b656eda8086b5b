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
	read := func(ctx context.Context, after string, limit int) ([]Subscription, error) {
		list, err := m.Parts.Subscriptions.List(ctx, r.Topic, after, limit)
		subs := make([]Subscription, len(list))
		for i, sub := range list {
			subs[i] = *m.subscriptionView(sub)
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
	topic, err := m.topic(ctx, r.Topic)
	if err != nil {
		return nil, err
	}
	spec, err := m.checkSubscription(ctx, topic, r.Subscription, r.Body)
	if err != nil {
		return nil, err
	}
	if r.DryRun {
		shown, err := m.dryRun(ctx, topic, r.Subscription, spec)
		return &api.Put[Subscription]{Body: shown}, err
	}
	sub, created, err := m.put(ctx, topic, r.Subscription, spec, r.Conditions()...)
	if err != nil {
		return nil, r.Rejected(m.putError(r.Topic, err), "event subscription", r.Subscription)
	}
	shown, err := m.withHeld(ctx, sub)
	return &api.Put[Subscription]{Body: shown, Created: created}, err
}

// putError is the response to an error of the catalog.
func (m *Handlers) putError(topic string, err error) error {
	var mistake *policy.ValidationError
	switch {
	case errors.As(err, &mistake): // another request has removed a secret that this one keeps
		return api.Invalid(mistake.Field, "%s", mistake.Message)
	case errors.Is(err, catalog.ErrNoPolicy): // another request has deleted it
		return m.unknownPolicy()
	case errors.Is(err, postgres.ErrNotFound):
		return api.TopicNotFound(topic)
	}
	return err
}

// GetSubscription responds to GET /v1/topics/{topic}/subscriptions/{subscription}.
func (m *Handlers) GetSubscription(ctx context.Context, r *SubscriptionPath) (*Subscription, error) {
	sub, err := m.Parts.Subscriptions.Get(ctx, r.Topic, r.Subscription)
	if err != nil {
		return nil, err
	}
	return m.withHeld(ctx, sub)
}

// DeleteSubscriptionRequest is the request DELETE /v1/topics/{topic}/subscriptions/{subscription}.
type DeleteSubscriptionRequest struct {
	SubscriptionPath
	api.IfMatchHeader
}

// DeleteSubscription responds to DELETE /v1/topics/{topic}/subscriptions/{subscription}.
func (m *Handlers) DeleteSubscription(ctx context.Context, r *DeleteSubscriptionRequest) (*api.NoContent, error) {
	err := m.Parts.Subscriptions.Delete(ctx, r.Topic, r.Subscription, r.Conditions()...)
	return &api.NoContent{}, r.Rejected(err, "event subscription", r.Subscription)
}

// rules are the effective rules of its deliveries. The policy's ranges, or the topic's retention, may have changed since
// its limits were set.
func (m *Handlers) rules(s *catalog.Subscription) policy.Rules {
	p, known := m.Parts.Cache.Snapshot().Policy(s.RetryPolicy.Policy)
	if !known { // created on another node within the last second
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

// dryRun shows an event subscription as a PUT would leave it.
func (m *Handlers) dryRun(
	ctx context.Context, topic *catalog.Topic, name string, spec catalog.SubscriptionSpec,
) (*Subscription, error) {
	sub := catalog.Subscription{Topic: topic.Name, Name: name, EventRetentionInDays: topic.EventRetentionInDays}
	before, err := m.Parts.Subscriptions.Get(ctx, topic.Name, name)
	switch {
	case err == nil:
		sub = *before
	case !errors.Is(err, postgres.ErrNotFound):
		return nil, err
	default:
		if err := m.Parts.Subscriptions.CheckNameFree(ctx, topic, name); err != nil {
			return nil, err
		}
		sub.ProvisioningState = catalog.ProvisioningSucceeded
		sub.CreatedAt, sub.UpdatedAt = m.Parts.Clock.Now(), m.Parts.Clock.Now()
	}
	sub.SubscriptionSpec, sub.EndpointBaseURL = spec.WithDefaults(topic), spec.EndpointBaseURL()
	return m.subscriptionView(&sub), nil
}
