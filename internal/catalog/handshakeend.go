package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/internal/access"
	"postrider/internal/postgres"
)

// HandshakeResult is the result of one request of a handshake.
type HandshakeResult struct {
	Job       int64
	Handshake *Handshake
	Step      HandshakeStep
	// State and Message are the handshake's new ones; HandshakePending: another request is sent, After this long.
	State   HandshakeState
	Message string
	After   time.Duration
}

// Record records the result of a request, and changes the event subscription that the handshake validates. For a job
// that was deleted it does nothing, without an error.
func (s *Handshakes) Record(ctx context.Context, r *HandshakeResult) error {
	if r.State == HandshakePending || r.Handshake.Purpose != PurposeValidation {
		_, err := s.recordHandshake(ctx, s.db, r)
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
		@lifetime, @at, @sent, @status, @error, @response, @verdict, @duration, @node)`
	args := pgx.NamedArgs{
		"job": r.Job, "id": r.Handshake.ID, "created": r.Handshake.CreatedAt, "state": string(r.State),
		"message": postgres.NullText(r.Message).String, "after": r.After, "lifetime": CallbackLifetime,
		"at": r.Step.At, "sent": postgres.NullText(r.Step.Sent).String, "status": postgres.NullInt(int64(r.Step.Status)),
		"error": postgres.NullText(r.Step.Error), "response": r.Step.Response,
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

// follow sets the state of an event subscription to that of its handshake. A validated one stays validated. The caller
// has locked the catalog and then the handshake, like a transaction that stores an event subscription with the
// handshake: the second one sees the first.
func (s *Handshakes) follow(ctx context.Context, tx pgx.Tx, h *Handshake, state HandshakeState) error {
	if state == HandshakeSucceeded {
		return s.validated(ctx, tx, h, false)
	}
	const change = `UPDATE postrider_internal.event_subscriptions SET provisioning_state = $2
		WHERE handshake_id = $1 AND provisioning_state <> 'Succeeded' AND deleted_at IS NULL`
	return postgres.Exec(ctx, tx, "conclude a handshake", change, h.ID, string(provisioned(state, ProvisioningUpdating)))
}

// validated validates the event subscription whose endpoint has responded as required, even if it has a later
// handshake. opened: validationUrl was opened.
func (s *Handshakes) validated(ctx context.Context, tx pgx.Tx, h *Handshake, opened bool) error {
	hash := s.endpointHash(h.EndpointURL)
	args := []any{h.ID, h.Topic, h.Subscription, hash, string(h.Schema), opened}
	ids, err := postgres.Values[int64](ctx, tx, sql("handshake_validated"), args...)
	if err != nil {
		return fmt.Errorf("conclude a handshake: %w", err)
	}
	for _, id := range ids { // one at most
		by := validation{state: ProvisioningSucceeded, handshake: h.ID}
		err = errors.Join(err, by.hold(ctx, tx, id))
	}
	return err
}

// CompleteValidation completes the handshake whose validationUrl was opened. Some endpoints open it before their
// response is recorded; opening it twice is no error. ErrNotFound; ErrValidationExpired: it has failed or expired.
func (s *Handshakes) CompleteValidation(ctx context.Context, topic, name, code string) error {
	const where = "WHERE code_hash = $1 AND topic = $2 AND subscription = $3 AND callback"
	hash := s.codeHash(code)
	if _, err := s.handshakeWhere(ctx, s.db, where, hash, topic, name); err != nil {
		return err // a client that guesses codes does not lock the catalog
	}
	return s.cache.change(ctx, func(tx pgx.Tx) error {
		h, err := s.handshakeWhere(ctx, tx, where+" FOR UPDATE", hash, topic, name)
		switch {
		case err != nil:
			return err
		case h.State == HandshakeSucceeded:
			return nil
		case h.State == HandshakeFailed, h.State == HandshakeAwaiting && !h.ReadAt.Before(*h.CallbackExpiresAt):
			return ErrValidationExpired
		}
		const verdict = "validated: validationUrl was opened"
		if err := postgres.Exec(ctx, tx, "complete a handshake", sql("handshake_complete"), h.ID, verdict,
			s.node); err != nil {
			return err
		}
		entry := access.AuditEntry{Action: access.AuditValidated, Topic: topic, Subscription: name}
		if err := access.Audit(ctx, tx, entry); err != nil {
			return err
		}
		s.log.Info("an endpoint was validated: its validationUrl was opened",
			"topic", topic, "subscription", name, "endpoint", h.EndpointBaseURL)
		return s.validated(ctx, tx, h, true)
	})
}

// Clean removes up to 10,000 handshakes that ended 30 days ago and validate no event subscription.
func (s *Handshakes) Clean(ctx context.Context) error {
	return postgres.Exec(ctx, s.db, "remove old handshakes", sql("handshake_clean"), 10_000)
}

// Expire fails the handshakes whose validationUrl was not opened in time.
func (s *Handshakes) Expire(ctx context.Context) error {
	const query = `SELECT EXISTS (
		SELECT FROM postrider_internal.handshakes WHERE state = 'awaiting' AND callback_expires_at <= now())`
	var due bool
	if err := s.db.QueryRow(ctx, query).Scan(&due); err != nil {
		return fmt.Errorf("search for expired handshakes: %w", err)
	}
	if !due {
		return nil
	}
	return s.cache.change(ctx, func(tx pgx.Tx) error {
		message := fmt.Sprintf("failed: validationUrl was not opened within %d minutes", int(CallbackLifetime.Minutes()))
		ids, err := postgres.Values[int64](ctx, tx, sql("handshake_expire"), message, s.node)
		if err != nil {
			return fmt.Errorf("fail expired handshakes: %w", err)
		}
		for _, id := range ids {
			s.log.Info("an endpoint was not validated: its validationUrl was not opened in time", "handshake", id)
			err = errors.Join(err, s.follow(ctx, tx, &Handshake{ID: id}, HandshakeFailed))
		}
		return err
	})
}
