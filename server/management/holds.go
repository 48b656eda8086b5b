package management

import (
	"context"
	"errors"

	"postrider/catalog"
	"postrider/postgres"
	"postrider/server/api"
)

// PauseSubscription answers POST /v1/topics/{topic}/subscriptions/{subscription}/pause.
func (m *Handlers) PauseSubscription(
	ctx context.Context, r api.PauseSubscriptionRequestObject,
) (api.PauseSubscriptionResponseObject, error) {
	var stopTimeToLive *bool
	if r.Body != nil {
		stopTimeToLive = r.Body.StopTimeToLive
	}
	shown, err := m.change(ctx, r.Topic, r.Subscription,
		func(ctx context.Context, topic, name string) (*catalog.Subscription, error) {
			return m.Parts.Holds.Pause(ctx, topic, name, stopTimeToLive)
		})
	if err != nil {
		return nil, err
	}
	return api.PauseSubscription200JSONResponse(shown), nil
}

// ResumeSubscription answers POST /v1/topics/{topic}/subscriptions/{subscription}/resume.
func (m *Handlers) ResumeSubscription(
	ctx context.Context, r api.ResumeSubscriptionRequestObject,
) (api.ResumeSubscriptionResponseObject, error) {
	shown, err := m.change(ctx, r.Topic, r.Subscription, m.Parts.Holds.Resume)
	if err != nil {
		return nil, err
	}
	return api.ResumeSubscription200JSONResponse(shown), nil
}

// ReleaseSubscription answers POST /v1/topics/{topic}/subscriptions/{subscription}/release.
func (m *Handlers) ReleaseSubscription(
	ctx context.Context, r api.ReleaseSubscriptionRequestObject,
) (api.ReleaseSubscriptionResponseObject, error) {
	shown, err := m.change(ctx, r.Topic, r.Subscription, m.Parts.Holds.Release)
	if err != nil {
		return nil, err
	}
	return api.ReleaseSubscription200JSONResponse(shown), nil
}

// ProbeSubscription answers POST /v1/topics/{topic}/subscriptions/{subscription}/probe.
func (m *Handlers) ProbeSubscription(
	ctx context.Context, r api.ProbeSubscriptionRequestObject,
) (api.ProbeSubscriptionResponseObject, error) {
	shown, err := m.change(ctx, r.Topic, r.Subscription, m.Parts.Holds.Probe)
	if err != nil {
		return nil, err
	}
	return api.ProbeSubscription200JSONResponse(shown), nil
}

// TestDelivery is the response to POST …/testDelivery.
type TestDelivery struct {
	DeliveryID int64 `json:"deliveryId"`
}

// TestDelivery responds to POST /v1/topics/{topic}/subscriptions/{subscription}/testDelivery.
func (m *Handlers) TestDelivery(ctx context.Context, r *SubscriptionPath) (*TestDelivery, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	id, err := m.Parts.Operator.TestDelivery(ctx, r.Topic, r.Subscription)
	if err != nil {
		return nil, r.rejected(err)
	}
	return &TestDelivery{DeliveryID: id}, nil
}

type holdChange func(ctx context.Context, topic, name string) (*catalog.Subscription, error)

// change changes a hold and shows the event subscription as it then is.
func (m *Handlers) change(ctx context.Context, topic, name string, change holdChange) (api.Subscription, error) {
	if !api.Storable(topic) || !api.Storable(name) {
		return api.Subscription{}, api.SubscriptionNotFound(topic, name)
	}
	sub, err := change(ctx, topic, name)
	switch {
	case errors.Is(err, postgres.ErrNotFound):
		return api.Subscription{}, api.SubscriptionNotFound(topic, name)
	case errors.Is(err, postgres.ErrPaused):
		return api.Subscription{}, api.RefuseConflict(api.ConflictCodeSubscriptionPaused,
			"event subscription %q of topic %q is paused: resume it first", name, topic)
	case errors.Is(err, postgres.ErrNotValidated):
		return api.Subscription{}, api.RefuseConflict(api.ConflictCodeEndpointNotValidated,
			"the endpoint of event subscription %q of topic %q is not validated: POST .../validate runs the handshake again, "+
				"and endpointValidation skip does without", name, topic)
	case errors.Is(err, catalog.ErrNoProbation):
		return api.Subscription{}, api.RefuseConflict(api.ConflictCodeSubscriptionNotOnProbation,
			"event subscription %q of topic %q is not on probation: there is nothing to probe", name, topic)
	case err != nil:
		return api.Subscription{}, err
	}
	return m.counted(ctx, sub)
}

// counted shows one event subscription with the number of deliveries that it holds, and the handshake it goes by.
func (m *Handlers) counted(ctx context.Context, s *catalog.Subscription) (shown api.Subscription, err error) {
	shown = m.subscriptionJSON(s)
	if shown.Validation, err = m.validated(ctx, s); err != nil {
		return api.Subscription{}, err
	}
	if shown.Hold == nil {
		return shown, nil
	}
	held, err := m.Parts.Holds.CountHeld(ctx, s.ID)
	if err != nil {
		return api.Subscription{}, err
	}
	shown.Hold.HeldDeliveries = &held
	return shown, nil
}

// holdJSON leaves the held deliveries uncounted: see counted.
func holdJSON(h catalog.HoldStatus) *api.Hold {
	if h.Reason == "" {
		return nil
	}
	return &api.Hold{
		Reason: api.HoldReason(h.Reason), Cause: textOrNull(h.Cause), Since: h.Since.UTC(), NextProbeAt: utcOrNull(h.Until),
		Probing:           h.Probing,
		TimeToLiveStopped: h.TimeToLiveStopped, Resuming: h.Resuming,
	}
}
