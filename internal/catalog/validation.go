package catalog

import (
	"bytes"
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"postrider/internal/postgres"
)

// validation is the state of the endpoint's validation that an event subscription is stored with.
type validation struct {
	setting   EndpointValidation
	state     ProvisioningState
	handshake int64 // 0 = none
}

// change is the kind of a change of an event subscription.
type change struct {
	handshake int64 // begun for it; 0 = none
	patch     bool  // the client has sent some settings only
}

// validationOf determines the validation. It locks the handshake until the commit: the transaction that concludes the
// handshake has committed before, or sees the event subscription.
func (s *Subscriptions) validationOf(
	ctx context.Context, tx pgx.Tx, spec *SubscriptionSpec, existing *Subscription, c change,
) (validation, error) {
	switch {
	case !spec.Destination.IsWebHook(): // only webhooks know the handshake
		return validation{setting: cmp.Or(spec.EndpointValidation, ValidationSkip), state: ProvisioningSucceeded}, nil
	case spec.Pulled(), spec.EndpointValidation != ValidationRequired:
		return validation{setting: ValidationSkip, state: ProvisioningSucceeded}, nil
	case !s.needsValidation(spec, existing, c) && (c.handshake == 0 || !existing.NotValidated()):
		return validation{ValidationRequired, existing.ProvisioningState, existing.HandshakeID}, nil
	case c.handshake == 0:
		return validation{}, postgres.ErrNotValidated
	}
	h, err := s.handshakes.handshakeWhere(ctx, tx, "WHERE id = $1 FOR UPDATE", c.handshake)
	if err != nil {
		return validation{}, err
	}
	pending := ProvisioningUpdating
	if existing == nil {
		pending = ProvisioningCreating
	}
	if h.State == HandshakeFailed {
		return validation{}, s.handshakes.validationFailed(ctx, tx, h)
	}
	if h.State == HandshakePending && existing != nil && !existing.NotValidated() {
		return validation{}, ErrValidationPending
	}
	return validation{ValidationRequired, provisioned(h.State, pending), h.ID}, nil
}

// needsValidation reports whether a handshake must be begun: once for each endpoint and schema. After a failed
// handshake a client that sends all settings needs a new one; a client that changes other settings does not.
func (s *Subscriptions) needsValidation(spec *SubscriptionSpec, existing *Subscription, c change) bool {
	if existing == nil || existing.EndpointValidation != ValidationRequired ||
		!bytes.Equal(existing.EndpointHash, s.endpointHash(spec.target())) ||
		handshakeSchema(existing.EventDeliverySchema) != handshakeSchema(spec.EventDeliverySchema) {
		return true
	}
	if existing.ProvisioningState == ProvisioningFailed {
		return !c.patch
	}
	return existing.NotValidated() && existing.HandshakeID == 0
}

func (s *Handshakes) validationFailed(ctx context.Context, db postgres.Querier, h *Handshake) error {
	if err := s.readSteps(ctx, db, h); err != nil {
		return err
	}
	return &ValidationFailedError{Handshake: h}
}

// hold begins or ends the hold, as the state requires. A subscription may have several causes of a hold at once.
func (v validation) hold(ctx context.Context, tx pgx.Tx, subscription int64) error {
	const (
		link  = "UPDATE postrider_internal.handshakes SET subscription_id = $2 WHERE id = $1"
		begin = `INSERT INTO postrider_internal.event_subscription_states AS st (subscription_id, not_validated_since)
			VALUES ($1, now()) ON CONFLICT (subscription_id)
			DO UPDATE SET not_validated_since = coalesce(st.not_validated_since, now()), updated_at = now()`
		end = `UPDATE postrider_internal.event_subscription_states SET not_validated_since = NULL, updated_at = now()
			WHERE subscription_id = $1 AND not_validated_since IS NOT NULL`
	)
	if v.handshake != 0 {
		doing := "store an event subscription with its handshake"
		if err := postgres.Exec(ctx, tx, doing, link, v.handshake, subscription); err != nil {
			return err
		}
	}
	if v.state == ProvisioningSucceeded {
		return postgres.Exec(ctx, tx, "release deliveries to a validated endpoint", end, subscription)
	}
	return postgres.Exec(ctx, tx, "hold deliveries until the endpoint is validated", begin, subscription)
}

// stored is called after an event subscription was stored. If a hold of an existing one has begun, it waits until all
// later attempts see the hold.
func (s *Subscriptions) stored(ctx context.Context, spec *SubscriptionSpec, sub *Subscription, created bool) {
	if spec.EndpointValidation == ValidationSkip && !spec.Pulled() && spec.Destination.IsWebHook() {
		s.log.Info("an endpoint is not validated: endpointValidation is skip",
			"topic", sub.Topic, "subscription", sub.Name, "endpoint", sub.EndpointBaseURL)
	}
	if sub.NotValidated() && !created {
		waitUntilVisible(ctx)
		return
	}
	s.fail.Reach(PointRelease)
}

// ConcludeValidation stores the end of the handshake that BeginValidation has begun with the endpoint of an event
// subscription. A validated event subscription stays validated. *ValidationFailedError: the handshake failed, and
// nothing was changed. ErrNotFound. ErrConflict: the event subscription now has another endpoint.
func (s *Subscriptions) ConcludeValidation(
	ctx context.Context, topic, name string, handshake int64,
) (sub *Subscription, err error) {
	err = s.cache.change(ctx, func(tx pgx.Tx) error {
		if sub, err = s.subscriptionOf(ctx, tx, topic, name); err != nil {
			return err
		}
		h, err := s.handshakes.handshakeWhere(ctx, tx, "WHERE id = $1 FOR UPDATE", handshake)
		switch {
		case err != nil:
			return err
		case h.State == HandshakeFailed:
			return s.handshakes.validationFailed(ctx, tx, h)
		case !bytes.Equal(h.EndpointHash, sub.EndpointHash) || h.Schema != handshakeSchema(sub.EventDeliverySchema):
			return fmt.Errorf("event subscription %q of topic %q names another endpoint by now: %w", name, topic,
				postgres.ErrConflict)
		}
		by := validation{sub.EndpointValidation, sub.ProvisioningState, handshake}
		if sub.NotValidated() {
			by.state = provisioned(h.State, ProvisioningUpdating)
		}
		const change = `UPDATE postrider_internal.event_subscriptions
			SET provisioning_state = $2, handshake_id = $3 WHERE id = $1`
		if err := postgres.Exec(ctx, tx, "conclude a validation", change, sub.ID, string(by.state), handshake); err != nil {
			return err
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
