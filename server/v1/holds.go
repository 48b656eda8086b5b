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
	// true excludes the pause from the time to live. By default false for a new pause, and unchanged for a current one.
	StopTimeToLive *bool `json:"stopTimeToLive,omitempty"`
}

// PauseSubscription holds the deliveries of an event subscription.
//
// Stops new attempts until resume. New events are held too. Attempts in progress finish.
//
// The time to live continues unless `stopTimeToLive` is true. A second pause only changes `stopTimeToLive`, for the
// whole pause.
func (m *Handlers) PauseSubscription(ctx context.Context, r *pauseRequest) (*Subscription, error) {
	return m.changeHold(ctx, &r.SubscriptionPath,
		func(ctx context.Context, topic, name string) (*catalog.Subscription, error) {
			return m.Parts.Holds.Pause(ctx, topic, name, r.Body.StopTimeToLive)
		})
}

// ResumeSubscription ends a pause.
//
// Releases the held deliveries in groups, the oldest first. Without a pause nothing changes.
//
// If the pause stopped the time to live, postrider first corrects the ages of held deliveries. With many deliveries
// this continues after the response, and `hold.resuming` is true.
func (m *Handlers) ResumeSubscription(ctx context.Context, r *SubscriptionPath) (*Subscription, error) {
	return m.changeHold(ctx, r, m.Parts.Holds.Resume)
}

// ReleaseSubscription ends a probation now.
//
// Ends a probation without a successful probe, and releases the held deliveries in groups, the oldest first. Without a
// probation nothing changes.
//
// The response is 409 if the event subscription is paused or its endpoint is not validated. Hold describes which event
// subscriptions share a probation.
func (m *Handlers) ReleaseSubscription(ctx context.Context, r *SubscriptionPath) (*Subscription, error) {
	return m.changeHold(ctx, r, m.Parts.Holds.Release)
}

// ProbeSubscription sends one delivery during a probation.
//
// Sends the next delivery now instead of at `nextProbeAt`; without a held delivery, the next published event. A success
// ends the probation. A failure starts the next hold.
//
// The response is 409 without a probation, while the event subscription is paused, and if its endpoint is not
// validated. Hold describes which event subscriptions share a probation.
func (m *Handlers) ProbeSubscription(ctx context.Context, r *SubscriptionPath) (*Subscription, error) {
	return m.changeHold(ctx, r, m.Parts.Holds.Probe)
}

// TestDelivery is the delivery of a sample event.
type TestDelivery struct {
	DeliveryID int64 `json:"deliveryId"`
}

// TestDelivery sends a sample event to one event subscription.
//
// Stores an event of type `postrider.TestEvent` in the topic's schema, and delivers it to this event subscription only.
// The filter is ignored. The delivery is retried, held and counted like others.
//
// The response is 409 if the event subscription has expired.
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

// Hold is the hold of an event subscription's deliveries. Held deliveries are not attempted and not lost; new events
// are held too. Under ga-2019 and ga-2021 a probation belongs to the endpoint. It holds all event subscriptions under
// such policies with the same `endpointUrl`, query string included. Release and probe act on all of them. Under
// namespace-2023 it belongs to one event subscription. Under ga-2026 both may hold. The endpoint's is shown then, with
// the later `nextProbeAt` of both.
type Hold struct {
	// paused: until an operator resumes it. not_validated: until the endpoint is validated. probation: until a probe
	// succeeds or an operator releases it. With several reasons, the first of these is shown.
	Reason string `json:"reason" enum:"paused,not_validated,probation"`
	// When the hold began. A failed probe does not change it.
	Since time.Time `json:"since"`
	// Outcome that started the probation, such as Busy or TimedOut; null for other holds.
	Cause *string `json:"cause"`
	// When one of its deliveries may be the probe of a probation; never a past time. The present time means that the
	// probe runs or waits for a due delivery. Null for other holds.
	NextProbeAt *time.Time `json:"nextProbeAt"`
	// The probe of a probation is in progress.
	Probing bool `json:"probing"`
	// The pause does not count toward the time to live.
	TimeToLiveStopped bool `json:"timeToLiveStopped"`
	// The pause was resumed, and ends after the ages of held deliveries are corrected.
	Resuming bool `json:"resuming"`
	// Number of held deliveries, without retries whose time has not come; null in lists.
	HeldDeliveries *int `json:"heldDeliveries"`
}

// Throttling are the deliveries that wait for the rate limit of an event subscription, or for its closed endpoint.
type Throttling struct {
	// Number of deliveries that wait, up to 10,000.
	Waiting int `json:"waiting"`
	// Until when the endpoint is closed after 429 or Retry-After; null if it is not.
	ClosedUntil *time.Time `json:"closedUntil"`
	// When the backlog is delivered at the limit; null if that is unknown.
	DrainsAt *time.Time `json:"drainsAt"`
	// true if the time to live of some deliveries ends before their turn.
	TooLate bool `json:"tooLate"`
}

// withHeld shows an event subscription with the count of its held deliveries and with its handshake.
func (m *Handlers) withHeld(ctx context.Context, s *catalog.Subscription) (*Subscription, error) {
	shown := m.subscriptionView(s)
	var err error
	if shown.Validation, err = m.validationView(ctx, s); err != nil {
		return nil, err
	}
	if shown.Hold == nil {
		return shown, nil
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
