package query

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

// DeadLetterFilter selects dead letters; the zero value matches all. Its members are columns of
// postrider.dead_letters.
type DeadLetterFilter struct {
	Topic         *string `query:"topic" json:"topic,omitzero"`
	Subscription  *string `query:"subscription" json:"subscription,omitzero"`
	Reason        *string `query:"reason" json:"reason,omitzero"`
	LastOutcome   *string `query:"lastOutcome" json:"lastOutcome,omitzero"`
	LastStatus    *int    `query:"lastStatus" json:"lastStatus,omitzero"`
	EventID       *string `query:"eventId" json:"eventId,omitzero"`
	EventType     *string `query:"eventType" json:"eventType,omitzero"`
	Subject       *string `query:"subject" json:"subject,omitzero"`
	SubjectPrefix *string `query:"subjectPrefix" json:"subjectPrefix,omitzero"`
	Source        *string `query:"source" json:"source,omitzero"`
	// DeadLetteredFrom is included, DeadLetteredUntil is not.
	DeadLetteredFrom  *time.Time `query:"deadLetteredFrom" json:"deadLetteredFrom,omitzero"`
	DeadLetteredUntil *time.Time `query:"deadLetteredUntil" json:"deadLetteredUntil,omitzero"`
	// Redelivered: true for those that were redelivered, false for the others, nil for both. A redelivery of many
	// reads nil as false.
	Redelivered *bool `query:"redelivered" json:"redelivered,omitzero"`
	// DeadLetterIDs are at most 5,000; nil for all, and an empty list for none.
	DeadLetterIDs []uuid.UUID `json:"deadLetterIds,omitzero" maxItems:"5000"`
}

// storedFilter is a DeadLetterFilter as the functions of schema postrider have it.
type storedFilter struct {
	Topic             *string     `json:"topic,omitzero"`
	Subscription      *string     `json:"subscription,omitzero"`
	Reason            *string     `json:"reason,omitzero"`
	LastOutcome       *string     `json:"last_outcome,omitzero"`
	LastStatus        *int        `json:"last_status,omitzero"`
	EventID           *string     `json:"event_id,omitzero"`
	EventType         *string     `json:"event_type,omitzero"`
	Subject           *string     `json:"subject,omitzero"`
	SubjectPrefix     *string     `json:"subject_prefix,omitzero"`
	Source            *string     `json:"source,omitzero"`
	DeadLetteredFrom  *time.Time  `json:"dead_lettered_from,omitzero"`
	DeadLetteredUntil *time.Time  `json:"dead_lettered_until,omitzero"`
	Redelivered       *bool       `json:"redelivered,omitzero"`
	DeadLetterIDs     []uuid.UUID `json:"dead_letter_ids,omitzero"`
}

// Scan implements sql.Scanner for a stored filter.
func (f *DeadLetterFilter) Scan(stored any) error {
	return json.Unmarshal(fmt.Appendf(nil, "%s", stored), (*storedFilter)(f))
}

// Text returns the filter as the functions of schema postrider expect it.
func (f *DeadLetterFilter) Text() (string, error) {
	text, err := json.Marshal((*storedFilter)(f))
	if err != nil {
		return "", fmt.Errorf("write a filter of dead letters: %w", err)
	}
	return string(text), nil
}

// DeadLetter is one row of postrider.dead_letters.
type DeadLetter struct {
	DeadLetterID    uuid.UUID  `json:"deadLetterId"`
	DeadLetteredAt  time.Time  `json:"deadLetteredAt"`
	Topic           string     `json:"topic"`
	Subscription    string     `json:"subscription"`
	Reason          string     `json:"reason"`
	Attempts        int        `json:"attempts"`
	LastOutcome     *string    `json:"lastOutcome"`
	LastStatus      *int       `json:"lastStatus"`
	LastError       *string    `json:"lastError"`
	EventID         string     `json:"eventId"`
	EventType       string     `json:"eventType"`
	Subject         string     `json:"subject"`
	Source          *string    `json:"source"`
	EventTime       *time.Time `json:"eventTime"`
	PublishedAt     time.Time  `json:"publishedAt"`
	FirstAttemptAt  *time.Time `json:"firstAttemptAt"`
	LastAttemptAt   *time.Time `json:"lastAttemptAt"`
	TimeToLiveSince time.Time  `json:"timeToLiveSince"`
	Schema          string     `json:"schema"`
	RetryPolicy     string     `json:"retryPolicy"`
	EndpointBaseURL string     `db:"endpoint_base_url" json:"endpointBaseUrl"`
	DeliveryID      int64      `json:"deliveryId"`
	SystemID        uuid.UUID  `json:"systemId"`
	RedeliveredFrom *uuid.UUID `json:"redeliveredFrom"`
	RedeliveredAt   *time.Time `json:"redeliveredAt"`
	// BodyText is the event as it was accepted; nil in a list, and empty if it was erased. Event is it as JSON.
	BodyText *string         `json:"-"`
	Event    json.RawMessage `db:"-" json:"event,omitempty"`
	// LastResponse is the beginning of the last response's body; nil in a list.
	LastResponse *string `json:"lastResponse,omitempty"`
}

var (
	deadLettersFound = sqlFile("dead_letters_found.sql")
	operations       = sqlFile("operations.sql")
)

// DeadLetterPlace is a place in the list of dead letters; the zero value is its beginning.
type DeadLetterPlace struct {
	DeadLetteredAt time.Time
	DeadLetterID   uuid.UUID
}

// Place returns the place of the dead letter in a list.
func (l *DeadLetter) Place() DeadLetterPlace {
	return DeadLetterPlace{l.DeadLetteredAt, l.DeadLetterID}
}

// ListDeadLetters lists up to limit dead letters that a filter matches, the newest first, after a place in the list.
// *FunctionError: the filter is invalid.
func (r *Reader) ListDeadLetters(
	ctx context.Context, filter *DeadLetterFilter, after DeadLetterPlace, limit int,
) ([]DeadLetter, error) {
	text, err := filter.Text()
	if err != nil {
		return nil, err
	}
	if after.DeadLetteredAt.IsZero() {
		after.DeadLetteredAt = time.Date(9999, time.January, 1, 0, 0, 0, 0, time.UTC)
	}
	args := []any{text, after.DeadLetteredAt, after.DeadLetterID, limit}
	list, err := postgres.Collect[DeadLetter](ctx, r.db, deadLettersFound, args...)
	return list, postgres.AsFunctionError(err)
}

// GetDeadLetter reads one dead letter; ErrNotFound.
func (r *Reader) GetDeadLetter(ctx context.Context, id uuid.UUID) (*DeadLetter, error) {
	row, err := r.ReadDeadLetter(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("dead letter %s: %w", id, err)
	}
	return &row.DeadLetter, nil
}

// countPatience is how long a dry run counts. Its caller waits for it.
const countPatience = 5 * time.Second

// Matched is the result of a dry run.
type Matched struct {
	Matched int64 `json:"matched"`
	// Redelivered is how many of them were redelivered before; of events 0.
	Redelivered int64 `json:"-"`
	// AtLeast: counting stopped early, there may be more.
	AtLeast bool `json:"atLeast"`
}

// CountDeadLetters counts the dead letters that a filter matches, for a little more than 5 s. *FunctionError: the
// filter is invalid.
func (r *Reader) CountDeadLetters(ctx context.Context, filter *DeadLetterFilter) (found Matched, err error) {
	text, err := filter.Text()
	if err != nil {
		return found, err
	}
	const count = "SELECT matched, redelivered, at_least FROM postrider_internal.measure_dead_letters($1, 'infinity', $2)"
	list, err := postgres.Collect[Matched](ctx, r.db, count, text, countPatience)
	if err != nil {
		return found, postgres.AsFunctionError(err)
	}
	return list[0], nil
}

// Operation is a bulk operation: a redelivery, a purge or an erasure of many.
type Operation struct {
	OperationID    uuid.UUID        `json:"operationId"`
	Kind           string           `json:"kind" enum:"redeliver,purge,redeliver_events,erase_subject"`
	State          string           `json:"state" enum:"running,done,canceled,failed"`
	Filter         DeadLetterFilter `json:"filter"`
	Topic          *string          `json:"topic"`
	Subscription   *string          `json:"subscription"`
	PublishedFrom  *time.Time       `json:"publishedFrom"`
	PublishedUntil *time.Time       `json:"publishedUntil"`
	RatePerSecond  *int             `json:"ratePerSecond"`
	// Matched is nil of past events and erasures.
	Matched        *int64  `json:"matched"`
	MatchedAtLeast bool    `json:"matchedAtLeast"`
	Done           int64   `json:"done"`
	Skipped        int64   `json:"skipped"`
	Failed         int64   `json:"failed"`
	LastError      *string `json:"lastError"`
	// ReachedAt is how far it has come: a time of dead-lettering, or of publishing.
	ReachedAt  *time.Time `json:"reachedAt"`
	StartedBy  string     `json:"startedBy"`
	CreatedAt  time.Time  `json:"createdAt"`
	FinishedAt *time.Time `json:"finishedAt"`
	// Outcomes are the states of its redeliveries; nil for a purge or an erasure.
	Outcomes *OperationOutcomes `json:"outcomes"`
}

// OperationOutcomes counts the redeliveries of an operation by their state.
type OperationOutcomes struct {
	Pending      int64 `json:"pending"`
	Delivered    int64 `json:"delivered"`
	DeadLettered int64 `json:"deadLettered"`
	Dropped      int64 `json:"dropped"`
	Canceled     int64 `json:"canceled"`
}

// OperationRunning is the state of an operation in progress.
const OperationRunning = "running"

// Operation reads one operation; ErrNotFound.
func (r *Reader) Operation(ctx context.Context, id uuid.UUID) (*Operation, error) {
	list, err := postgres.Collect[Operation](ctx, r.db, operations, pgx.NamedArgs{"id": id, "limit": 1})
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("operation %s: %w", id, postgres.ErrNotFound)
	}
	return &list[0], nil
}

// Operations lists up to limit operations, the newest first, after one of them, or from the beginning for nil.
func (r *Reader) Operations(ctx context.Context, after *Operation, limit int) ([]Operation, error) {
	args := pgx.NamedArgs{"limit": limit}
	if after != nil {
		args["after"], args["after_id"] = after.CreatedAt, after.OperationID
	}
	return postgres.Collect[Operation](ctx, r.db, operations, args)
}
