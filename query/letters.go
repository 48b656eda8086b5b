package query

import (
	"context"
	"time"

	"postrider/event"
	"postrider/policy"
	"postrider/postgres"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// LetterFilter says which dead letters are read. What is empty does not count.
type LetterFilter struct {
	Topic, Subscription, Reason string
	// After continues a reading behind this dead letter.
	After DeadLetterPlace
	// From is included, Until is not.
	From, Until time.Time
}

const lettersAfter = `
WHERE (l.dead_lettered_at, l.id) > ($1, $2) AND l.dead_lettered_at < $3
  AND ($4 = '' OR l.topic = $4) AND ($5 = '' OR l.subscription = $5) AND ($6 = '' OR l.reason = $6)
      AND l.erased_at IS NULL
ORDER BY l.dead_lettered_at, l.id LIMIT $7`

// EachLetter calls do for dead letters, at most limit, the oldest first, one by one, without those that were erased: no
// more than one is in memory. It ends with do's error.
func EachLetter(ctx context.Context, pool *pgxpool.Pool, f LetterFilter, limit int, do func(*Letter) error) error {
	if f.After.DeadLetteredAt.Before(f.From) {
		f.After = DeadLetterPlace{DeadLetteredAt: f.From}
	}
	args := []any{
		f.After.DeadLetteredAt, [16]byte(f.After.DeadLetterID), f.Until, f.Topic, f.Subscription, f.Reason, limit,
	}
	return WalkLetters(ctx, pool, lettersAfter, args, do)
}

// letterColumns are those of Letter. Whether event subscription and topic are deleted makes no difference: their rows
// stay.
const letterColumns = `
SELECT l.id, l.dead_lettered_at, l.topic, l.subscription, t.kind = 'namespace' AS namespace, s.event_delivery_schema,
       l.endpoint_base_url, l.reason, l.attempts,
       coalesce(l.last_outcome, '') AS last_outcome, coalesce(l.last_status, 0) AS last_status,
       coalesce(l.last_error, '') AS last_error, l.first_attempt_at, l.last_attempt_at,
       l.owed_since, l.published_at, l.event_time, l.event_uuid AS system_id, l.event_id, l.event_type, l.subject,
       l.source, l.data_version, l.schema, l.retry_policy, l.delivery_id,
       l.redelivered_from, l.redelivered_at, coalesce(l.export_state, '') AS export_state, l.exported_at,
       coalesce(l.export_location, '') AS export_location, l.body
  FROM postrider_internal.dead_letters l
  JOIN postrider_internal.event_subscriptions s ON s.id = l.subscription_id
  JOIN postrider_internal.topics t ON t.id = l.topic_id `

// Letter is one dead letter, whole.
type Letter struct {
	ID                                  uuid.UUID
	DeadLetteredAt                      time.Time
	Topic, Subscription                 string
	Namespace                           bool // the topic is a namespace's
	EventDeliverySchema                 string
	EndpointBaseURL                     string `db:"endpoint_base_url"`
	Reason                              string
	Attempts                            int
	LastOutcome                         string // "" where no attempt was made
	LastStatus                          int    // 0 = no answer
	LastError                           string
	FirstAttemptAt, LastAttemptAt       *time.Time
	OwedSince, PublishedAt              time.Time
	EventTime                           *time.Time
	SystemID                            uuid.UUID
	EventID, EventType, Subject, Source string
	DataVersion, Schema, RetryPolicy    string
	DeliveryID                          int64
	RedeliveredFrom                     *uuid.UUID
	RedeliveredAt                       *time.Time
	ExportState                         string // "" where it is kept here alone
	ExportedAt                          *time.Time
	ExportLocation                      string
	Body                                []byte // the event as it was accepted
}

// EventGrid is the dead letter as Event Grid tells it in this form.
func (l *Letter) EventGrid(form event.DeadLetterForm) event.DeadLetter {
	d := event.DeadLetter{
		Topic: l.Topic, Delivery: event.Schema(l.EventDeliverySchema), Reason: l.Reason, Attempts: l.Attempts,
		Outcome: l.LastOutcome, Status: l.LastStatus, PublishedAt: l.PublishedAt,
		Event: event.Event{
			Schema: event.Schema(l.Schema), ID: l.EventID, Type: l.EventType, Subject: l.Subject, Source: l.Source,
			DataVersion: l.DataVersion, Body: l.Body,
		},
	}
	if form == event.DeadLetterAround {
		d.Reason = policy.Reason(l.Reason).Sentence()
	}
	if l.EventTime != nil {
		d.Event.Time = *l.EventTime
	}
	if l.LastAttemptAt != nil {
		d.LastAttemptAt = *l.LastAttemptAt
	}
	return d
}

// WalkLetters reads dead letters one by one, chosen by a WHERE clause on l.
func WalkLetters(ctx context.Context, db postgres.Querier, where string, args []any, do func(*Letter) error) error {
	rows, err := db.Query(ctx, letterColumns+where, args...)
	if err != nil {
		return postgres.ReadFailed("dead letters", err)
	}
	defer rows.Close()
	for rows.Next() {
		l, err := pgx.RowToAddrOfStructByName[Letter](rows)
		if err != nil {
			return postgres.ReadFailed("dead letters", err)
		}
		if err := do(l); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return postgres.ReadFailed("dead letters", err)
	}
	return nil
}
