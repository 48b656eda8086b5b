package query

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"postrider/postgres"
)

// DeadLetterFilter says which dead letters are meant; the zero value matches them all. Its members are the columns of
// postrider.dead_letters.
type DeadLetterFilter struct {
	Topic         *string `json:"topic,omitzero"`
	Subscription  *string `json:"subscription,omitzero"`
	Reason        *string `json:"reason,omitzero"`
	LastOutcome   *string `json:"last_outcome,omitzero"`
	LastStatus    *int    `json:"last_status,omitzero"`
	EventID       *string `json:"event_id,omitzero"`
	EventType     *string `json:"event_type,omitzero"`
	Subject       *string `json:"subject,omitzero"`
	SubjectPrefix *string `json:"subject_prefix,omitzero"`
	Source        *string `json:"source,omitzero"`
	// DeadLetteredFrom is included, DeadLetteredUntil is not.
	DeadLetteredFrom  *time.Time `json:"dead_lettered_from,omitzero"`
	DeadLetteredUntil *time.Time `json:"dead_lettered_until,omitzero"`
	// Redelivered: those that were, or those that were not; nil for both. To redeliver many, nil is those that were not.
	Redelivered *bool `json:"redelivered,omitzero"`
	// DeadLetterIDs are at most 5,000; nil for all, and an empty list for none.
	DeadLetterIDs []uuid.UUID `json:"dead_letter_ids,omitzero"`
}

// Text is the filter as the functions of schema postrider take it.
func (f *DeadLetterFilter) Text() (string, error) {
	text, err := json.Marshal(f)
	if err != nil {
		return "", fmt.Errorf("write a filter of dead letters: %w", err)
	}
	return string(text), nil
}

// DeadLetter is one dead letter as the view shows it.
type DeadLetter struct {
	DeadLetterID        uuid.UUID
	DeadLetteredAt      time.Time
	Topic, Subscription string
	Reason              string
	Attempts            int
	LastOutcome         *string
	LastStatus          *int
	LastError           *string
	EventID             string
	EventType, Subject  string
	Source              *string
	EventTime           *time.Time
	PublishedAt         time.Time
	OwedSince           time.Time
	FirstAttemptAt      *time.Time
	LastAttemptAt       *time.Time
	Schema              string
	RetryPolicy         string
	EndpointBaseURL     string `db:"endpoint_base_url"`
	DeliveryID          int64
	SystemID            uuid.UUID
	RedeliveredFrom     *uuid.UUID
	RedeliveredAt       *time.Time
	// BodyText is the event as it was accepted, and LastResponse the beginning of the last answer's body; nil in a list.
	BodyText, LastResponse *string
}

const deadLetterColumns = `SELECT dead_letter_id, dead_lettered_at, topic, subscription, reason, attempts, last_outcome,
	       last_status, last_error, event_id, event_type, subject,
	source, event_time, published_at, owed_since, first_attempt_at, last_attempt_at, schema, retry_policy,
	    endpoint_base_url, delivery_id, system_id, redelivered_from, redelivered_at, `

// DeadLetterPlace is a place in the list of dead letters; the zero value is its beginning.
type DeadLetterPlace struct {
	DeadLetteredAt time.Time
	DeadLetterID   uuid.UUID
}

// Place is where the dead letter stands in the list.
func (l *DeadLetter) Place() DeadLetterPlace {
	return DeadLetterPlace{l.DeadLetteredAt, l.DeadLetterID}
}

// ListDeadLetters lists the dead letters that a filter matches, the newest first, at most limit of them behind a place
// in the list. *FunctionError: the filter cannot be used.
func (r *Reader) ListDeadLetters(
	ctx context.Context, filter *DeadLetterFilter, after DeadLetterPlace, limit int,
) ([]DeadLetter, error) {
	const query = deadLetterColumns + `NULL::text AS body_text, NULL::text AS last_response FROM postrider.dead_letters
		WHERE dead_letter_id = ANY (ARRAY (SELECT postrider_internal.find_dead_letters($1, $2, $3, $4)))
		ORDER BY dead_lettered_at DESC, dead_letter_id DESC`
	text, err := filter.Text()
	if err != nil {
		return nil, err
	}
	if after.DeadLetteredAt.IsZero() {
		after.DeadLetteredAt = postgres.FarFuture
	}
	list, err := postgres.Collect[DeadLetter](ctx, r.db, query, text, after.DeadLetteredAt, after.DeadLetterID, limit)
	return list, postgres.AsFunctionError(err)
}

// GetDeadLetter reads one dead letter; ErrNotFound.
func (r *Reader) GetDeadLetter(ctx context.Context, id uuid.UUID) (*DeadLetter, error) {
	const query = deadLetterColumns + `body_text, last_response FROM postrider.dead_letters WHERE dead_letter_id = $1`
	list, err := postgres.Collect[DeadLetter](ctx, r.db, query, id)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("dead letter %s: %w", id, postgres.ErrNotFound)
	}
	return &list[0], nil
}

// countPatience is how long a dry run counts. Whoever asks waits for it.
const countPatience = 5 * time.Second

// Matched is what a dry run found.
type Matched struct {
	Matched int64
	// Redelivered is how many of them were redelivered before; of events 0.
	Redelivered int64
	AtLeast     bool // counting was stopped: there may be more
}

// CountDeadLetters counts the dead letters that a filter matches, for 5 s and a little. *FunctionError: the filter
// cannot be used.
func (r *Reader) CountDeadLetters(ctx context.Context, filter *DeadLetterFilter) (found Matched, err error) {
	text, err := filter.Text()
	if err != nil {
		return found, err
	}
	list, err := postgres.Collect[Matched](ctx, r.db,
		"SELECT matched, redelivered, at_least FROM postrider_internal.count_letters($1, 'infinity', $2)", text,
		countPatience)
	if err != nil {
		return found, postgres.AsFunctionError(err)
	}
	return list[0], nil
}

// Operation is a redelivery, a purge or an erasure of many.
type Operation struct {
	OperationID                   uuid.UUID
	Kind, State                   string
	Filter                        DeadLetterFilter
	Topic, Subscription           *string
	PublishedFrom, PublishedUntil *time.Time
	RatePerSecond                 *int
	Matched                       *int64 // nil of past events and erasures
	MatchedAtLeast                bool
	Done, Skipped, Failed         int64
	LastError                     *string
	ReachedAt                     *time.Time // how far it has looked: the time of giving up, or of publishing
	StartedBy                     string
	CreatedAt                     time.Time
	FinishedAt                    *time.Time
	// What became of its redeliveries; nil for a purge or an erasure.
	Pending, Delivered, DeadLettered, Dropped, Canceled *int64
}

// OperationRunning is the state of an operation that is under way.
const OperationRunning = "running"

const operationColumns = `SELECT operation_id, kind, state, filter, topic, subscription, published_from,
	       published_until, rate_per_second, matched, matched_at_least, done, skipped, failed, last_error,
	reached_at, started_by, created_at, finished_at, pending, delivered, dead_lettered, dropped, canceled
	FROM postrider.operations `

// Operation reads one operation; ErrNotFound.
func (r *Reader) Operation(ctx context.Context, id uuid.UUID) (*Operation, error) {
	list, err := postgres.Collect[Operation](ctx, r.db, operationColumns+"WHERE operation_id = $1", id)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("operation %s: %w", id, postgres.ErrNotFound)
	}
	return &list[0], nil
}

// Operations lists operations, the newest first, at most limit of them behind one of them in the list, nil for its
// beginning.
func (r *Reader) Operations(ctx context.Context, after *Operation, limit int) ([]Operation, error) {
	const query = operationColumns +
		"WHERE (created_at, operation_id) < ($1, $2) ORDER BY created_at DESC, operation_id DESC LIMIT $3"
	if after == nil {
		after = &Operation{CreatedAt: postgres.FarFuture}
	}
	return postgres.Collect[Operation](ctx, r.db, query, after.CreatedAt, after.OperationID, limit)
}
