package query

import (
	"context"
	"encoding/json"
	"time"

	"postrider/internal/event"
	"postrider/internal/postgres"
	"postrider/policy"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// StoredDeadLetterFilter selects dead letters; "" = all.
type StoredDeadLetterFilter struct {
	Topic        string `query:"topic"`
	Subscription string `query:"subscription"`
	Reason       string `query:"reason"`
	State        string `query:"state" enum:"open,redelivered,resolved"`
	// Dead-lettered at this time or later.
	From  time.Time `query:"deadLetteredFrom"`
	Until time.Time `query:"deadLetteredUntil"`
	// After is the dead letter after which reading continues.
	After DeadLetterPlace
}

// EachDeadLetter calls do for up to limit dead letters, the oldest first, until do fails. It skips erased ones, and has
// one in memory at a time.
func EachDeadLetter(
	ctx context.Context, pool *pgxpool.Pool, f StoredDeadLetterFilter, limit int, do func(*StoredDeadLetter) error,
) error {
	if f.After.DeadLetteredAt.Before(f.From) {
		f.After = DeadLetterPlace{DeadLetteredAt: f.From}
	}
	args := []any{f.After.DeadLetteredAt, f.After.DeadLetterID, f.Until, f.Topic, f.Subscription, f.Reason, f.State, limit}
	return WalkDeadLetters(ctx, pool, sql("stored_dead_letters_after"), args, do)
}

// StoredDeadLetter is one dead letter with its body. Its names in JSON are those of postrider.dead_letters.
type StoredDeadLetter struct {
	ID                  uuid.UUID  `json:"dead_letter_id"`
	DeadLetteredAt      time.Time  `json:"dead_lettered_at"`
	Topic               string     `json:"topic"`
	Namespace           bool       `json:"-"` // the topic is a namespace's
	Subscription        string     `json:"subscription"`
	EventDeliverySchema string     `json:"-"`
	State               string     `json:"state"`
	Reason              string     `json:"reason"`
	Attempts            int        `json:"attempts"`
	LastOutcome         *string    `json:"last_outcome"` // nil without an attempt
	LastStatus          *int       `json:"last_status"`  // nil without a response
	LastError           *string    `json:"last_error"`
	EventID             string     `json:"event_id"`
	EventType           string     `json:"event_type"`
	Subject             string     `json:"subject"`
	Source              *string    `json:"source"`
	EventTime           *time.Time `json:"event_time"`
	PublishedAt         time.Time  `json:"published_at"`
	TimeToLiveSince     time.Time  `json:"time_to_live_since"`
	FirstAttemptAt      *time.Time `json:"first_attempt_at"`
	LastAttemptAt       *time.Time `json:"last_attempt_at"`
	DataVersion         string     `json:"-"`
	Schema              string     `json:"schema"`
	RetryPolicy         string     `json:"retry_policy"`
	EndpointBaseURL     string     `db:"endpoint_base_url" json:"endpoint_base_url"`
	DeliveryID          *int64     `json:"delivery_id"`    // nil if it was imported
	ImportedFrom        *string    `json:"imported_from"`  // nil if it was a delivery
	ImportedIndex       *int       `json:"imported_index"` // as well
	SystemID            uuid.UUID  `json:"system_id"`
	RedeliveredFrom     *uuid.UUID `json:"redelivered_from"`
	RedeliveredAt       *time.Time `json:"redelivered_at"`
	RedeliveryID        *int64     `json:"redelivery_id"`
	ResolvedAt          *time.Time `json:"resolved_at"`
	ResolvedBy          *string    `json:"resolved_by"`
	ResolvedNote        *string    `json:"resolved_note"`
	ExportState         *string    `json:"export_state"` // nil if it is not exported
	ExportedAt          *time.Time `json:"exported_at"`
	ExportLocation      *string    `json:"export_location"`
	// Body is the event as it was accepted.
	Body json.RawMessage `json:"body"`
}

// EventGrid returns the dead letter in a form of Event Grid.
func (l *StoredDeadLetter) EventGrid(form event.DeadLetterForm) event.DeadLetter {
	d := event.DeadLetter{
		Topic: l.Topic, Delivery: event.Schema(l.EventDeliverySchema), Reason: l.Reason, Attempts: l.Attempts,
		Outcome: orZero(l.LastOutcome), Status: orZero(l.LastStatus), PublishedAt: l.PublishedAt,
		LastAttemptAt: orZero(l.LastAttemptAt),
		Event: event.Event{
			Schema: event.Schema(l.Schema), ID: l.EventID, Type: l.EventType, Subject: l.Subject, Source: orZero(l.Source),
			Time: orZero(l.EventTime), DataVersion: l.DataVersion, Body: l.Body,
		},
	}
	if form == event.DeadLetterNested {
		d.Reason, d.Outcome = policy.Reason(l.Reason).Sentence(), policy.Outcome(d.Outcome).Sentence()
	}
	return d
}

func orZero[T any](v *T) (zero T) {
	if v == nil {
		return zero
	}
	return *v
}

// WalkDeadLetters reads dead letters one by one; where is a WHERE clause on l.
func WalkDeadLetters(
	ctx context.Context, db postgres.Querier, where string, args []any, do func(*StoredDeadLetter) error,
) error {
	rows, _ := db.Query(ctx, sql("stored_dead_letters")+where, args...) // rows.Err returns its error
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
