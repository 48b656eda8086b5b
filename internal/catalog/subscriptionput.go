package catalog

import (
	"context"
	"errors"
	"fmt"

	"postrider/internal/access"
	"postrider/internal/endpointconf"
	"postrider/internal/filter"
	"postrider/internal/message"
	"postrider/internal/postgres"

	"github.com/jackc/pgx/v5"
)

// Put creates or replaces an event subscription. Pending deliveries use the new settings from their next attempt on.
// ErrNotFound: there is no such topic. *FunctionError, which is ErrConflict: an existing name differs only in letter
// case. ErrNoPolicy. *policy.ValidationError: a secret to keep does not exist. ErrPrecondition. ErrNotValidated: the
// endpoint must be validated first, see BeginValidation.
func (s *Subscriptions) Put(
	ctx context.Context, topic, name string, spec SubscriptionSpec, when ...postgres.Condition,
) (sub *Subscription, created bool, err error) {
	return s.putSubscription(ctx, topic, name, spec, change{}, when)
}

// Patch is Put for a client that has sent some settings only: an endpoint whose handshake has failed is validated again
// only if the endpoint or its schema changes.
func (s *Subscriptions) Patch(
	ctx context.Context, topic, name string, spec SubscriptionSpec, when ...postgres.Condition,
) (*Subscription, error) {
	sub, _, err := s.putSubscription(ctx, topic, name, spec, change{patch: true}, when)
	return sub, err
}

// PutValidated is Put with the handshake that BeginValidation has begun with this endpoint. Unless it has succeeded,
// the event subscription is stored and its deliveries wait until the handshake ends. *ValidationFailedError: the
// handshake failed. ErrValidationPending: it is pending, and a validated endpoint would be replaced. Both change
// nothing.
func (s *Subscriptions) PutValidated(
	ctx context.Context, topic, name string, spec SubscriptionSpec, handshake int64, when ...postgres.Condition,
) (sub *Subscription, created bool, err error) {
	return s.putSubscription(ctx, topic, name, spec, change{handshake: handshake}, when)
}

func (s *Subscriptions) putSubscription(
	ctx context.Context, topic, name string, spec SubscriptionSpec, c change, when []postgres.Condition,
) (sub *Subscription, created bool, err error) {
	err = s.cache.change(ctx, func(tx pgx.Tx) error {
		sub, created, err = s.putIn(ctx, tx, topic, name, &spec, c, when)
		return err
	})
	if err == nil {
		s.stored(ctx, &spec, sub, created)
	}
	return sub, created, err
}

// putIn completes spec with the secrets to keep, and stores it with its hold and its row of the audit.
func (s *Subscriptions) putIn(
	ctx context.Context, tx pgx.Tx, topic, name string, spec *SubscriptionSpec, c change, when []postgres.Condition,
) (sub *Subscription, created bool, err error) {
	parent, err := s.topic(ctx, tx, topic)
	if err != nil {
		return nil, false, err
	}
	existing, err := s.subscriptionOf(ctx, tx, topic, name)
	if created = errors.Is(err, postgres.ErrNotFound); created {
		err = subscriptionNameFree(ctx, tx, parent.ID, name)
	}
	if err != nil {
		return nil, created, err
	}
	if err := postgres.CheckConditions(when, existing.version()); err != nil {
		return nil, created, fmt.Errorf("event subscription %q of topic %q: %w", name, topic, err)
	}
	effective := spec.WithDefaults(parent)
	if err := usablePolicy(ctx, tx, effective.RetryPolicy.Policy); err != nil {
		return nil, created, err
	}
	if err := spec.keepSecrets(existing); err != nil {
		return nil, created, err
	}
	signingKey, err := spec.takeSigningKey(existing)
	if err != nil {
		return nil, created, err
	}
	by, err := s.validationOf(ctx, tx, &effective, existing, c)
	if err != nil {
		return nil, created, err
	}
	if err := s.writeSubscription(ctx, tx, parent, name, spec, signingKey, existing, by); err != nil {
		return nil, created, err
	}
	if err := auditPut(ctx, tx, topic, name, spec, existing); err != nil {
		return nil, created, err
	}
	if sub, err = s.subscriptionOf(ctx, tx, topic, name); err != nil ||
		by.handshake == 0 && (existing == nil || !existing.NotValidated()) { // never on hold for its validation
		return sub, created, err
	}
	if err := by.hold(ctx, tx, sub.ID); err != nil {
		return nil, created, err
	}
	sub, err = s.subscriptionOf(ctx, tx, topic, name)
	return sub, created, err
}

// usablePolicy is ErrNoPolicy for a retry policy that does not exist. A foreign key does not notice a deleted policy:
// its row remains.
func usablePolicy(ctx context.Context, tx pgx.Tx, name string) error {
	own, err := ownPolicy(ctx, tx, name)
	if errors.Is(err, ErrBuiltIn) {
		return nil
	}
	if err == nil && own == 0 {
		return fmt.Errorf("retry policy %q: %w", name, ErrNoPolicy)
	}
	return err
}

// keepSecrets replaces the secrets that the client did not send by the stored ones.
func (s *SubscriptionSpec) keepSecrets(existing *Subscription) error {
	var stored SubscriptionSpec
	if existing != nil {
		stored = existing.Stated
	}
	var err error
	if s.DeliveryAttributes, err = endpointconf.KeepSecrets(s.DeliveryAttributes, stored.DeliveryAttributes); err != nil {
		return err
	}
	if s.PagerDutyRoutingKey = s.routingKey(&stored); s.PagerDutyRoutingKey == "" && s.MessageFormat == message.PagerDuty {
		return &filter.ValidationError{Field: routingKeySetting, Message: "is required: none is stored for this endpointUrl"}
	}
	s.Destination = s.Destination.KeepSecrets(stored.Destination, s.OAuth2 != nil)
	s.Connection, err = endpointconf.KeepConnectionSecrets(s.Connection, &stored.Connection)
	return err
}

func (s *Subscriptions) writeSubscription(
	ctx context.Context, tx pgx.Tx, topic *Topic, name string, spec *SubscriptionSpec, signingKey []byte,
	existing *Subscription, by validation,
) error {
	settings, secrets, err := s.sealSpec(secretsColumn, *spec)
	if err != nil {
		return err
	}
	effective := spec.WithDefaults(topic)
	args := pgx.NamedArgs{
		"settings": settings, "secrets": secrets, "endpoint_base_url": spec.EndpointBaseURL(),
		"endpoint_hash": nil, "schema": effective.EventDeliverySchema,
		"policy": effective.RetryPolicy.Policy, "expiration": spec.ExpirationTimeUTC, "signing": nil,
		"validation": by.setting, "provisioning": by.state, "handshake": postgres.NullInt(by.handshake),
	}
	if !spec.Pulled() {
		args["endpoint_hash"] = s.endpointHash(spec.target())
	}
	if spec.Signing.Enabled {
		if signingKey == nil {
			signingKey = newSigningKey()
		}
		args["signing"] = s.sealSigning(endpointconf.NewSigning(signingKey, s.cache.secretTime()))
	}
	statement := sql("subscription_insert")
	args["topic_id"], args["name"] = topic.ID, name
	if existing != nil {
		statement, args["id"] = sql("subscription_update"), existing.ID
	}
	if _, err := tx.Exec(ctx, statement, args); err != nil {
		return fmt.Errorf("store event subscription %q: %w", name, err)
	}
	return nil
}

// Delete deletes an event subscription and cancels its pending deliveries. History and dead letters stay; the name can
// be used again immediately. A validated endpoint gets a notice. Drain continues cancellations that take longer than
// drainTimeout or that a crash interrupts. ErrNotFound, ErrPrecondition.
func (s *Subscriptions) Delete(ctx context.Context, topic, name string, when ...postgres.Condition) error {
	var id int64
	err := s.cache.change(ctx, func(tx pgx.Tx) error {
		sub, err := s.subscriptionOf(ctx, tx, topic, name)
		if err != nil {
			return err
		}
		if err := postgres.CheckConditions(when, sub.version()); err != nil {
			return fmt.Errorf("event subscription %q of topic %q: %w", name, topic, err)
		}
		id = sub.ID
		return s.remove(ctx, tx, sub, access.AuditSubscriptionDeleted)
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	if err := s.CancelPending(ctx, id); err != nil {
		s.log.Warn("deliveries of a deleted event subscription are canceled in the background",
			"topic", topic, "subscription", name, "error", err)
	}
	return nil
}

// remove marks an event subscription as deleted, and begins the notice to its endpoint.
func (s *Subscriptions) remove(ctx context.Context, tx pgx.Tx, sub *Subscription, why access.AuditAction) error {
	if err := access.Audit(ctx, tx, access.AuditEntry{
		Action: why, Topic: sub.Topic, Subscription: sub.Name,
		Changes: new(SubscriptionSpec).changesFrom(&sub.Stated),
	}); err != nil {
		return err
	}
	if !sub.NotValidated() && !sub.Pulled() && sub.Destination.IsWebHook() {
		args, err := s.handshakes.handshakeArgs(PurposeDeletion, sub.Topic, sub.Name, sub.SubscriptionSpec)
		if err != nil {
			return err
		}
		if err := postgres.Exec(ctx, tx, "notify the endpoint of the deletion", beginHandshakeStatement, args); err != nil {
			return err
		}
	}
	const deleted = `UPDATE postrider_internal.event_subscriptions
		SET deleted_at = now(), signing_sealed = NULL, secrets_sealed = NULL WHERE id = $1`
	doing := fmt.Sprintf("delete event subscription %q of topic %q", sub.Name, sub.Topic)
	return postgres.Exec(ctx, tx, doing, deleted, sub.ID)
}
