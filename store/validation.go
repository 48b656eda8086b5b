package store

import (
	"bytes"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// validation is what an event subscription is stored with.
type validation struct {
	setting   EndpointValidation
	state     ProvisioningState
	handshake int64 // 0 = none
}

// change is how an event subscription is put.
type change struct {
	handshake int64 // that was made for it; 0 = none
	patch     bool  // not all settings were stated anew
}

// validationOf decides it. The handshake's row is locked until the commit: whoever ends the handshake either has done so, or finds
// the event subscription that was stored with it.
func (s *Subscriptions) validationOf(ctx context.Context, tx pgx.Tx, spec *SubscriptionSpec, existing *Subscription, c change) (validation, error) {
	switch {
	case spec.EndpointValidation != ValidationRequired:
		return validation{setting: ValidationSkip, state: ProvisioningSucceeded}, nil
	case !s.needsValidation(spec, existing, c) && (c.handshake == 0 || !existing.NotValidated()):
		return validation{setting: ValidationRequired, state: existing.ProvisioningState, handshake: existing.HandshakeID}, nil
	case c.handshake == 0:
		return validation{}, ErrNotValidated
	}
	h, _, err := s.handshakes.handshakeWhere(ctx, tx, "WHERE id = $1 FOR UPDATE", c.handshake)
	if err != nil {
		return validation{}, err
	}
	if h.State == HandshakeFailed {
		return validation{}, s.handshakes.validationFailed(ctx, tx, h)
	}
	if h.State == HandshakePending && existing != nil && !existing.NotValidated() {
		return validation{}, ErrNoAnswerYet
	}
	return validation{setting: ValidationRequired, state: provisioned(h.State, underWay(existing)), handshake: h.ID}, nil
}

// needsValidation: an endpoint is asked once for what it is sent, and the handshake with it is gone by until it fails. Then whoever
// states all settings asks again, and whoever changes others does not.
func (s *Subscriptions) needsValidation(spec *SubscriptionSpec, existing *Subscription, c change) bool {
	switch {
	case existing == nil, existing.EndpointValidation != ValidationRequired,
		!bytes.Equal(existing.EndpointHash, s.endpointHash(spec.EndpointURL)),
		handshakeSchema(existing.EventDeliverySchema) != handshakeSchema(spec.EventDeliverySchema):
		return true
	case existing.ProvisioningState == ProvisioningFailed:
		return !c.patch
	}
	return existing.NotValidated() && existing.HandshakeID == 0
}

// underWay is the state of an event subscription whose handshake is pending.
func underWay(existing *Subscription) ProvisioningState {
	if existing == nil {
		return ProvisioningCreating
	}
	return ProvisioningUpdating
}

func (s *Handshakes) validationFailed(ctx context.Context, db querier, h *Handshake) error {
	if err := s.readSteps(ctx, db, h); err != nil {
		return err
	}
	return &ValidationFailedError{Handshake: h}
}

// touches: most event subscriptions were never held for this, and are not now.
func (v validation) touches(existing *Subscription) bool {
	return v.handshake != 0 || existing != nil && existing.NotValidated()
}

// hold makes the hold what the state says.
func (v validation) hold(ctx context.Context, tx pgx.Tx, subscription int64) error {
	if v.handshake != 0 {
		const tell = "UPDATE postrider_internal.handshakes SET subscription_id = $2 WHERE id = $1"
		if _, err := tx.Exec(ctx, tell, v.handshake, subscription); err != nil {
			return fmt.Errorf("store an event subscription with its handshake: %w", err)
		}
	}
	if v.state == ProvisioningSucceeded {
		return endValidationHold(ctx, tx, subscription)
	}
	return beginValidationHold(ctx, tx, subscription)
}

// stored is called when an event subscription was stored. Where a hold has begun on one that was there before, it returns once no
// attempt begins that has not seen it. That somebody vouched for the endpoint is told.
func (s *Subscriptions) stored(ctx context.Context, spec *SubscriptionSpec, sub *Subscription, made bool) {
	if spec.EndpointValidation == ValidationSkip {
		s.log.Info("an endpoint is not validated: endpointValidation is skip", "topic", sub.Topic, "subscription", sub.Name, "endpoint", sub.EndpointBaseURL)
	}
	if sub.NotValidated() && !made {
		waitUntilVisible(ctx)
		return
	}
	s.fail.Reach(PointRelease)
}

// ConcludeValidation is told that the handshake with the endpoint of an event subscription, which BeginValidation has begun, was
// waited for. One whose endpoint was validated before stays as it is, and so does one whose handshake fails
// (*ValidationFailedError); else it goes by the new handshake. ErrNotFound; ErrConflict: it names another endpoint by now.
func (s *Subscriptions) ConcludeValidation(ctx context.Context, topic, name string, handshake int64) (sub *Subscription, err error) {
	err = s.cache.change(ctx, func(tx pgx.Tx) error {
		if sub, err = s.subscriptionOf(ctx, tx, topic, name); err != nil {
			return err
		}
		h, row, err := s.handshakes.handshakeWhere(ctx, tx, "WHERE id = $1 FOR UPDATE", handshake)
		switch {
		case err != nil:
			return err
		case h.State == HandshakeFailed:
			return s.handshakes.validationFailed(ctx, tx, h)
		case !bytes.Equal(row.EndpointHash, sub.EndpointHash) || h.Schema != handshakeSchema(sub.EventDeliverySchema):
			return fmt.Errorf("event subscription %q of topic %q names another endpoint by now: %w", name, topic, ErrConflict)
		}
		by := validation{setting: sub.EndpointValidation, state: sub.ProvisioningState, handshake: handshake}
		if sub.NotValidated() {
			by.state = provisioned(h.State, ProvisioningUpdating)
		}
		const change = "UPDATE postrider_internal.event_subscriptions SET provisioning_state = $2, handshake_id = $3 WHERE id = $1"
		if _, err := tx.Exec(ctx, change, sub.ID, string(by.state), handshake); err != nil {
			return fmt.Errorf("conclude a validation: %w", err)
		}
		if err := by.hold(ctx, tx, sub.ID); err != nil {
			return err
		}
		sub, err = s.subscriptionOf(ctx, tx, topic, name)
		return err
	})
	if err == nil {
		s.fail.Reach(PointRelease)
	}
	return sub, err
}
