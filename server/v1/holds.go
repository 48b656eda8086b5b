package v1

import (
	"context"
	"errors"
	"time"

	"postrider/internal/catalog"
	"postrider/internal/postgres"
	"postrider/server/api"
)

type pauseRequest struct {
	SubscriptionPath
	Body PauseSpec
}

// PauseSpec are the options of a pause.
type PauseSpec struct {
	StopTimeToLive *bool `json:"stopTimeToLive,omitempty"`
}

// PauseSubscription responds to POST /v1/topics/{topic}/subscriptions/{subscription}/pause.
func (m *Handlers) PauseSubscription(ctx context.Context, r *pauseRequest) (*Subscription, error) {
	return m.changeHold(ctx, &r.SubscriptionPath,
		func(ctx context.Context, topic, name string) (*catalog.Subscription, error) {
			return m.Parts.Holds.Pause(ctx, topic, name, r.Body.StopTimeToLive)
		})
}

// OnHold responds to POST /v1/topics/{topic}/subscriptions/{subscription}/resume, release and probe.
func (m *Handlers) OnHold(
	change func(ctx context.Context, topic, name string) (*catalog.Subscription, error),
) func(context.Context, *SubscriptionPath) (*Subscription, error) {
	return func(ctx context.Context, r *SubscriptionPath) (*Subscription, error) {
		return m.changeHold(ctx, r, change)
	}
}

// TestDelivery is the response to POST …/testDelivery.
type TestDelivery struct {
	DeliveryID int64 `json:"deliveryId"`
}

// TestDelivery responds to POST /v1/topics/{topic}/subscriptions/{subscription}/testDelivery.
func (m *Handlers) TestDelivery(ctx context.Context, r *SubscriptionPath) (*TestDelivery, error) {
	id, err := m.Parts.Operator.TestDelivery(ctx, r.Topic, r.Subscription)
	return &TestDelivery{DeliveryID: id}, err
}

// changeHold changes a hold and returns the event subscription after it.
func (m *Handlers) changeHold(
	ctx context.Context, r *SubscriptionPath,
	change func(ctx context.Context, topic, name string) (*catalog.Subscription, error),
) (*Subscription, error) {
	topic, name := r.Topic, r.Subscription
	sub, err := change(ctx, topic, name)
	switch {
	case errors.Is(err, postgres.ErrPaused):
		return nil, api.RejectConflict(api.ConflictCodeSubscriptionPaused,
			"event subscription %q of topic %q is paused: resume it first", name, topic)
	case errors.Is(err, postgres.ErrNotValidated):
		return nil, api.RejectConflict(api.ConflictCodeEndpointNotValidated,
			"the endpoint of event subscription %q of topic %q is not validated: repeat the handshake with POST .../validate, "+
				"or set endpointValidation to skip", name, topic)
	case errors.Is(err, catalog.ErrNoProbation):
		return nil, api.RejectConflict(api.ConflictCodeSubscriptionNotInProbation,
			"event subscription %q of topic %q is not in probation, so it cannot be probed", name, topic)
	case err != nil:
		return nil, err
	}
	return m.withHeld(ctx, sub)
}

// Hold is the hold of an event subscription's deliveries.
type Hold struct {
	Reason            string     `json:"reason" enum:"paused,not_validated,probation"`
	Since             time.Time  `json:"since"`
	Cause             *string    `json:"cause"`
	NextProbeAt       *time.Time `json:"nextProbeAt"`
	Probing           bool       `json:"probing"`
	TimeToLiveStopped bool       `json:"timeToLiveStopped"`
	Resuming          bool       `json:"resuming"`
	HeldDeliveries    *int       `json:"heldDeliveries"`
}

// withHeld shows an event subscription with the count of its held deliveries and with its handshake.
func (m *Handlers) withHeld(ctx context.Context, s *catalog.Subscription) (*Subscription, error) {
	shown := m.subscriptionView(s)
	var err error
	if shown.Validation, err = m.validationView(ctx, s); err != nil || shown.Hold == nil {
		return shown, err
	}
	held, err := m.Parts.Holds.CountHeld(ctx, s.ID)
	shown.Hold.HeldDeliveries = &held
	return shown, err
}

// holdView shows a hold without the count of held deliveries; nil if there is none.
func holdView(h catalog.HoldStatus) *Hold {
	if h.Reason == "" {
		return nil
	}
	return &Hold{
		Reason: h.Reason, Cause: textOrNull(h.Cause), Since: *h.Since, NextProbeAt: h.Until, Probing: h.Probing,
		TimeToLiveStopped: h.TimeToLiveStopped, Resuming: h.Resuming,
	}
}
