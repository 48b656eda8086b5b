package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// SubscriptionLine is one event subscription as the views show it.
type SubscriptionLine struct {
	Topic, Subscription, EndpointBaseURL, EndpointKind, EventDeliverySchema, RetryPolicy string
	MaxDeliveryAttempts                                                                  *int
	EventTimeToLiveInMinutes                                                             int
	DeadLetterDestination, ProvisioningState                                             string
	Hold, HoldCause                                                                      *string
	HoldUntil                                                                            *time.Time
	Probing                                                                              bool
	Validation                                                                           *string // how its handshake stands; nil where it is over
	CreatedAt                                                                            time.Time
}

// SubscriptionLines lists event subscriptions by topic and name, at most limit of them.
func (s *Store) SubscriptionLines(ctx context.Context, limit int) ([]SubscriptionLine, error) {
	const query = `SELECT topic, subscription, endpoint_base_url, endpoint_kind, event_delivery_schema, retry_policy, max_delivery_attempts,
		event_time_to_live_in_minutes, dead_letter_destination ->> 'endpointType' AS dead_letter_destination, provisioning_state, hold, hold_cause, hold_until, coalesce(probing, false) AS probing, created_at,
		CASE WHEN provisioning_state <> 'Succeeded' THEN
			(SELECT h.message FROM postrider.handshakes h WHERE h.current AND h.topic = s.topic AND h.subscription = s.subscription LIMIT 1) END AS validation
		FROM postrider.event_subscriptions s ORDER BY topic, subscription LIMIT $1`
	return collect[SubscriptionLine](ctx, s.pool, query, limit)
}

// DeadLetterLine is one dead letter as the view shows it, its body cut to 4,000 characters.
type DeadLetterLine struct {
	DeadLetterID                uuid.UUID
	DeadLetteredAt              time.Time
	Topic, Subscription, Reason string
	Attempts                    int
	LastOutcome                 *string
	LastStatus                  *int
	EventID, EventType, Subject string
	PublishedAt                 time.Time
	LastAttemptAt               *time.Time
	BodyText                    string
}

// DeadLetterLines lists dead letters, newest first, at most limit of them, older than the one named by its time and id.
func (s *Store) DeadLetterLines(ctx context.Context, before time.Time, beforeID uuid.UUID, limit int) ([]DeadLetterLine, error) {
	const query = `SELECT dead_letter_id, dead_lettered_at, topic, subscription, reason, attempts, last_outcome, last_status, event_id, event_type, subject,
		published_at, last_attempt_at, coalesce(left(body_text, 4000), body_error) AS body_text
		FROM postrider.dead_letters WHERE $1::timestamptz IS NULL OR (dead_lettered_at, dead_letter_id) < ($1, $2)
		ORDER BY dead_lettered_at DESC, dead_letter_id DESC LIMIT $3`
	var from *time.Time
	if !before.IsZero() {
		from = &before
	}
	return collect[DeadLetterLine](ctx, s.pool, query, from, [16]byte(beforeID), limit)
}

// readTimeout bounds what management and the dashboard read of the big tables.
const readTimeout = 10 * time.Second

// collect reads with PostgreSQL's own timeout: a caller who merely leaves would leave it reading.
func collect[T any](ctx context.Context, pool *pgxpool.Pool, query string, args ...any) (found []T, err error) {
	err = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT set_config('statement_timeout', $1, true)", fmt.Sprint(readTimeout.Milliseconds())); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, query, args...)
		if err != nil {
			return err
		}
		found, err = pgx.CollectRows(rows, pgx.RowToStructByName[T])
		return err
	})
	if err != nil {
		return nil, readError("a report", err)
	}
	return found, nil
}

// readError tells an outage from a fault, for whoever answers a person.
func readError(what string, err error) error { return outage("read "+what, err) }

// outage says what failed, and ErrUnavailable where it may succeed another time.
func outage(doing string, err error) error {
	if isOutage(err) {
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}
