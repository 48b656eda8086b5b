package server

import (
	"context"
	"errors"

	"postrider/store"
)

// PauseSubscription answers POST /v1/topics/{topic}/subscriptions/{subscription}/pause.
func (m *management) PauseSubscription(ctx context.Context, r PauseSubscriptionRequestObject) (PauseSubscriptionResponseObject, error) {
	var stopTimeToLive *bool
	if r.Body != nil {
		stopTimeToLive = r.Body.StopTimeToLive
	}
	shown, err := m.change(ctx, r.Topic, r.Subscription, func(ctx context.Context, topic, name string) (*store.Subscription, error) {
		return m.store.PauseSubscription(ctx, topic, name, stopTimeToLive)
	})
	if err != nil {
		return nil, err
	}
	return PauseSubscription200JSONResponse(shown), nil
}

// ResumeSubscription answers POST /v1/topics/{topic}/subscriptions/{subscription}/resume.
func (m *management) ResumeSubscription(ctx context.Context, r ResumeSubscriptionRequestObject) (ResumeSubscriptionResponseObject, error) {
	shown, err := m.change(ctx, r.Topic, r.Subscription, m.store.ResumeSubscription)
	if err != nil {
		return nil, err
	}
	return ResumeSubscription200JSONResponse(shown), nil
}

// ReleaseSubscription answers POST /v1/topics/{topic}/subscriptions/{subscription}/release.
func (m *management) ReleaseSubscription(ctx context.Context, r ReleaseSubscriptionRequestObject) (ReleaseSubscriptionResponseObject, error) {
	shown, err := m.change(ctx, r.Topic, r.Subscription, m.store.ReleaseSubscription)
	if err != nil {
		return nil, err
	}
	return ReleaseSubscription200JSONResponse(shown), nil
}

// ProbeSubscription answers POST /v1/topics/{topic}/subscriptions/{subscription}/probe.
func (m *management) ProbeSubscription(ctx context.Context, r ProbeSubscriptionRequestObject) (ProbeSubscriptionResponseObject, error) {
	shown, err := m.change(ctx, r.Topic, r.Subscription, m.store.ProbeSubscription)
	if err != nil {
		return nil, err
	}
	return ProbeSubscription200JSONResponse(shown), nil
}

// TestDelivery answers POST /v1/topics/{topic}/subscriptions/{subscription}/testDelivery.
func (m *management) TestDelivery(ctx context.Context, r TestDeliveryRequestObject) (TestDeliveryResponseObject, error) {
	if !storable(r.Topic) || !storable(r.Subscription) {
		return nil, subscriptionNotFound(r.Topic, r.Subscription)
	}
	id, err := m.store.Operator().TestDelivery(ctx, r.Topic, r.Subscription)
	if errors.Is(err, store.ErrNotFound) {
		return nil, subscriptionNotFound(r.Topic, r.Subscription)
	}
	if err != nil {
		return nil, err
	}
	return TestDelivery200JSONResponse{DeliveryId: id}, nil
}

type holdChange func(ctx context.Context, topic, name string) (*store.Subscription, error)

// change changes a hold and shows the event subscription as it then is.
func (m *management) change(ctx context.Context, topic, name string, change holdChange) (Subscription, error) {
	if !storable(topic) || !storable(name) {
		return Subscription{}, subscriptionNotFound(topic, name)
	}
	sub, err := change(ctx, topic, name)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return Subscription{}, subscriptionNotFound(topic, name)
	case errors.Is(err, store.ErrPaused):
		return Subscription{}, conflict(ConflictCodeSubscriptionPaused, "event subscription %q of topic %q is paused: resume it first", name, topic)
	case errors.Is(err, store.ErrNotValidated):
		return Subscription{}, conflict(ConflictCodeEndpointNotValidated,
			"the endpoint of event subscription %q of topic %q is not validated: POST .../validate runs the handshake again, and endpointValidation skip does without", name, topic)
	case errors.Is(err, store.ErrNoProbation):
		return Subscription{}, conflict(ConflictCodeSubscriptionNotOnProbation, "event subscription %q of topic %q is not on probation: there is nothing to probe", name, topic)
	case err != nil:
		return Subscription{}, err
	}
	return m.counted(ctx, sub)
}

// counted shows one event subscription with the number of deliveries that it holds, and the handshake it goes by.
func (m *management) counted(ctx context.Context, s *store.Subscription) (shown Subscription, err error) {
	shown = m.subscriptionJSON(s)
	if shown.Validation, err = m.validated(ctx, s); err != nil {
		return Subscription{}, err
	}
	if shown.Hold == nil {
		return shown, nil
	}
	held, err := m.store.HeldDeliveries(ctx, s.ID)
	if err != nil {
		return Subscription{}, err
	}
	shown.Hold.HeldDeliveries = &held
	return shown, nil
}

// holdJSON leaves the held deliveries uncounted: see counted.
func holdJSON(h store.HoldStatus) *Hold {
	if h.Reason == "" {
		return nil
	}
	return &Hold{
		Reason: HoldReason(h.Reason), Cause: textOrNull(h.Cause), Since: h.Since.UTC(), NextProbeAt: utcOrNull(h.Until), Probing: h.Probing,
		TimeToLiveStopped: h.TimeToLiveStopped, Resuming: h.Resuming,
	}
}
