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

// StoredDeadLetterFilter selects dead letters; "" = all.
type StoredDeadLetterFilter struct {
	Topic, Subscription, Reason string
	// After is the dead letter after which reading continues.
	After DeadLetterPlace
	// From is included, Until is not.
	From, Until time.Time
}

var (
	storedDeadLetters      = sqlFile("stored_dead_letters.sql")
	storedDeadLettersAfter = sqlFile("stored_dead_letters_after.sql")
)

// EachDeadLetter calls do for up to limit dead letters, the oldest first, without erased ones, until do fails. Only one
// is in memory at a time.
func EachDeadLetter(
	ctx context.Context, pool *pgxpool.Pool, f StoredDeadLetterFilter, limit int, do func(*StoredDeadLetter) error,
) error {
	if f.After.DeadLetteredAt.Before(f.From) {
		f.After = DeadLetterPlace{DeadLetteredAt: f.From}
	}
	args := []any{f.After.DeadLetteredAt, f.After.DeadLetterID, f.Until, f.Topic, f.Subscription, f.Reason, limit}
	return WalkDeadLetters(ctx, pool, storedDeadLettersAfter, args, do)
}

// StoredDeadLetter is one dead letter with its body.
type StoredDeadLetter struct {
	ID                                  uuid.UUID
	DeadLetteredAt                      time.Time
	Topic, Subscription                 string
	Namespace                           bool // the topic is a namespace's
	EventDeliverySchema                 string
	EndpointBaseURL                     string `db:"endpoint_base_url"`
	Reason                              string
	Attempts                            int
	LastOutcome                         string // "" without an attempt
	LastStatus                          int    // 0 = no response
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
	ExportState                         string // "" if it is not exported
	ExportedAt                          *time.Time
	ExportLocation                      string
	Body                                []byte // the event as it was accepted
}

// EventGrid returns the dead letter in a form of Event Grid.
func (l *StoredDeadLetter) EventGrid(form event.DeadLetterForm) event.DeadLetter {
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
	d.Event.Time, d.LastAttemptAt = postgres.TimeOrNone(l.EventTime), postgres.TimeOrNone(l.LastAttemptAt)
	return d
}

// WalkDeadLetters reads dead letters one by one; where is a WHERE clause on l.
func WalkDeadLetters(
	ctx context.Context, db postgres.Querier, where string, args []any, do func(*StoredDeadLetter) error,
) error {
	rows, err := db.Query(ctx, storedDeadLetters+where, args...)
	if err != nil {
		return postgres.ReadError("dead letters", err)
	}
	defer rows.Close()
	for rows.Next() {
		l, err := pgx.RowToAddrOfStructByName[StoredDeadLetter](rows)
		if err != nil {
			return postgres.ReadError("dead letters", err)
		}
		if err := do(l); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return postgres.ReadError("dead letters", err)
	}
	return nil
}
