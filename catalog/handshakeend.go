package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/access"
	"postrider/postgres"
)

// HandshakeResult is the result of one request of a handshake.
type HandshakeResult struct {
	Job       int64
	Handshake *Handshake
	Step      HandshakeStep
	// State and Message are the handshake's from now on; HandshakePending: another request is made, After this long.
	State   HandshakeState
	Message string
	After   time.Duration
}

// Record records the result of a request, and changes the event subscription that the handshake validates: its
// hold ends, or stays. For a job that is gone it does nothing, without an error.
func (s *Handshakes) Record(ctx context.Context, r *HandshakeResult) (err error) {
	if r.State == HandshakePending || r.Handshake.Purpose == PurposeDeletion {
		_, err = s.recordHandshake(ctx, s.db, r)
		return err
	}
	return s.cache.change(ctx, func(tx pgx.Tx) error {
		concluded, err := s.recordHandshake(ctx, tx, r)
		if err != nil || !concluded {
			return err
		}
		return s.follow(ctx, tx, r.Handshake, r.State)
	})
}

func (s *Handshakes) recordHandshake(
	ctx context.Context, db postgres.Querier, r *HandshakeResult,
) (concluded bool, err error) {
	const record = `SELECT postrider_internal.record_handshake_step(@job, @id, @created, @state, @message, @after,
		@lifetime, @at, @sent, @status, @error, @answer, @verdict, @duration, @node)`
	args := pgx.NamedArgs{
		"job": r.Job, "id": r.Handshake.ID, "created": r.Handshake.CreatedAt, "state": string(r.State),
		"message": postgres.NullText(r.Message).String, "after": r.After, "lifetime": CallbackLifetime,
		"at": r.Step.At, "sent": postgres.NullText(r.Step.Sent).String, "status": postgres.NullInt(int64(r.Step.Status)),
		"error": postgres.NullText(r.Step.Error), "answer": r.Step.Answer,
		"verdict":  postgres.NullText(r.Step.Verdict).String,
		"duration": r.Step.Duration.Microseconds(), "node": s.node,
	}
	if err := db.QueryRow(ctx, record, args).Scan(&concluded); err != nil {
		return false, fmt.Errorf("record a handshake: %w", err)
	}
	return concluded, nil
}

// provisioned is the state of an event subscription whose handshake has this state.
func provisioned(state HandshakeState, before ProvisioningState) ProvisioningState {
	switch state {
	case HandshakeSucceeded:
		return ProvisioningSucceeded
	case HandshakeAwaiting:
		return ProvisioningAwaiting
	case HandshakeFailed:
		return ProvisioningFailed
	default:
		return before
	}
}

// follow gives an event subscription the state of its handshake. A validated event subscription stays validated. The
// caller has locked the catalog and then the handshake, as a transaction that stores an event subscription with the
// handshake does: one of the two sees the other, in any order.
func (s *Handshakes) follow(ctx context.Context, tx pgx.Tx, h *Handshake, state HandshakeState) error {
	if state == HandshakeSucceeded {
		return s.validated(ctx, tx, h, false)
	}
	const change = `UPDATE postrider_internal.event_subscriptions SET provisioning_state = $2
		WHERE handshake_id = $1 AND provisioning_state <> 'Succeeded' AND deleted_at IS NULL`
	if _, err := tx.Exec(ctx, change, h.ID, string(provisioned(state, ProvisioningUpdating))); err != nil {
		return fmt.Errorf("conclude a handshake: %w", err)
	}
	return nil
}

var validatedStatement = sqlFile("handshake_validated.sql")

// validated validates the event subscription whose endpoint has responded as required, even if another handshake has
// taken the place of this one. opened: validationUrl was opened.
func (s *Handshakes) validated(ctx context.Context, tx pgx.Tx, h *Handshake, opened bool) error {
	hash := s.endpointHash(h.EndpointURL)
	args := []any{h.ID, h.Topic, h.Subscription, hash, string(h.Schema), opened}
	ids, err := postgres.Values[int64](ctx, tx, validatedStatement, args...)
	if err != nil {
		return fmt.Errorf("conclude a handshake: %w", err)
	}
	for _, id := range ids { // one at most
		by := validation{state: ProvisioningSucceeded, handshake: h.ID}
		err = errors.Join(err, by.hold(ctx, tx, id))
	}
	return err
}

// beginValidationHold and endValidationHold do for a missing validation what a pause and a resume do. Several causes
// may hold at once.
func beginValidationHold(ctx context.Context, tx pgx.Tx, subscription int64) error {
	const hold = `INSERT INTO postrider_internal.event_subscription_states AS st (subscription_id, not_validated_since)
		VALUES ($1, now()) ON CONFLICT (subscription_id)
		DO UPDATE SET not_validated_since = coalesce(st.not_validated_since, now()), updated_at = now()`
	if _, err := tx.Exec(ctx, hold, subscription); err != nil {
		return fmt.Errorf("hold deliveries until the endpoint is validated: %w", err)
	}
	return nil
}

func endValidationHold(ctx context.Context, tx pgx.Tx, subscription int64) error {
	const release = `UPDATE postrider_internal.event_subscription_states SET not_validated_since = NULL, updated_at = now()
		WHERE subscription_id = $1 AND not_validated_since IS NOT NULL`
	if _, err := tx.Exec(ctx, release, subscription); err != nil {
		return fmt.Errorf("release deliveries to a validated endpoint: %w", err)
	}
	return nil
}

// CompleteValidation completes the handshake whose validationUrl was opened. Some endpoints open it at once, before
// their response is recorded; opening it twice is no error. ErrNotFound: there is no such handshake.
// ErrValidationExpired: it has failed or expired.
func (s *Handshakes) CompleteValidation(ctx context.Context, topic, name, code string) error {
	const where = "WHERE code_hash = $1 AND topic = $2 AND subscription = $3 AND callback"
	hash := s.codeHash(code)
	if _, _, err := s.handshakeWhere(ctx, s.db, where, hash, topic, name); err != nil {
		return err // a client that guesses codes does not lock the catalog
	}
	return s.cache.change(ctx, func(tx pgx.Tx) error {
		h, _, err := s.handshakeWhere(ctx, tx, where+" FOR UPDATE", hash, topic, name)
		switch {
		case err != nil:
			return err
		case h.State == HandshakeSucceeded:
			return nil
		case h.State == HandshakeFailed, h.State == HandshakeAwaiting && !h.ReadAt.Before(*h.CallbackExpiresAt):
			return ErrValidationExpired
		}
		if err := s.completeHandshake(ctx, tx, h); err != nil {
			return err
		}
		if err := access.Audit(ctx, tx,
			access.AuditEntry{Action: access.AuditValidated, Topic: topic, Subscription: name}); err != nil {
			return err
		}
		s.log.Info("an endpoint was validated: its validationUrl was opened",
			"topic", topic, "subscription", name, "endpoint", h.EndpointBaseURL)
		return s.validated(ctx, tx, h, true)
	})
}

var (
	completeStatement = sqlFile("handshake_complete.sql")
	cleanStatement    = sqlFile("handshake_clean.sql")
)

func (s *Handshakes) completeHandshake(ctx context.Context, tx pgx.Tx, h *Handshake) error {
	if _, err := tx.Exec(ctx, completeStatement, h.ID, "validated: validationUrl was opened", s.node); err != nil {
		return fmt.Errorf("complete a handshake: %w", err)
	}
	return nil
}

// handshakesCleaned is how many handshakes one call of Clean removes at most.
const handshakesCleaned = 10_000

// Clean removes handshakes that ended 30 days ago and validate no event subscription.
func (s *Handshakes) Clean(ctx context.Context) error {
	if _, err := s.db.Exec(ctx, cleanStatement, handshakesCleaned); err != nil {
		return fmt.Errorf("remove old handshakes: %w", err)
	}
	return nil
}

// Expire fails the handshakes whose validationUrl was not opened in time.
func (s *Handshakes) Expire(ctx context.Context) error {
	const query = `SELECT EXISTS (
		SELECT FROM postrider_internal.handshakes WHERE state = 'awaiting' AND callback_expires_at <= now())`
	var due bool
	if err := s.db.QueryRow(ctx, query).Scan(&due); err != nil {
		return fmt.Errorf("look for expired handshakes: %w", err)
	}
	if !due {
		return nil
	}
	return s.cache.change(ctx, func(tx pgx.Tx) error { return s.expireHandshakes(ctx, tx) })
}

var expireHandshakesStatement = sqlFile("handshake_expire.sql")

func (s *Handshakes) expireHandshakes(ctx context.Context, tx pgx.Tx) error {
	message := fmt.Sprintf("failed: validationUrl was not opened within %d minutes", int(CallbackLifetime.Minutes()))
	ids, err := postgres.Values[int64](ctx, tx, expireHandshakesStatement, message, s.node)
	if err != nil {
		return fmt.Errorf("fail expired handshakes: %w", err)
	}
	for _, id := range ids {
		s.log.Info("an endpoint was not validated: its validationUrl was not opened in time", "handshake", id)
		err = errors.Join(err, s.follow(ctx, tx, &Handshake{ID: id}, HandshakeFailed))
	}
	return err
}
