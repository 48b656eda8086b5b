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
	Lineage
	// Version is nil in a list.
	Version *postgres.Version `json:"etag,omitempty"`
	// BodyText is the event as it was accepted; nil in a list, and empty if it was erased. Event is it as JSON.
	BodyText *string         `json:"-"`
	Event    json.RawMessage `db:"-" json:"event,omitempty"`
	// LastResponse is the beginning of the last response's body; nil in a list.
	LastResponse *string `json:"lastResponse,omitempty"`
}

// Lineage is what a repair made of an event. Its members are nil for an event that was not edited.
type Lineage struct {
	// EditedFrom is the original event.
	EditedFrom *uuid.UUID `json:"editedFrom"`
	EditedBy   *string    `json:"editedBy"`
	// Edit is a JSON Patch from the original to the event; nil in a list, if PostgreSQL cannot hold one of the two as
	// jsonb, and after an erasure.
	Edit json.RawMessage `json:"edit,omitempty"`
}

// DeadLetterPlace is a position in the list of dead letters; the zero value is its beginning.
type DeadLetterPlace struct {
	DeadLetteredAt time.Time
	DeadLetterID   uuid.UUID
}

// Place returns the position of the dead letter in a list.
func (l *DeadLetter) Place() DeadLetterPlace {
	return DeadLetterPlace{l.DeadLetteredAt, l.DeadLetterID}
}

// ListDeadLetters lists up to limit dead letters that a filter matches, the newest first, after a position in the list.
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
	list, err := postgres.Collect[DeadLetter](ctx, r.db, sql("dead_letters_found"), args...)
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

// countTime is how long a dry run counts. Its caller waits for it.
const countTime = 5 * time.Second

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
	list, err := postgres.Collect[Matched](ctx, r.db, count, text, countTime)
	if err != nil {
		return found, postgres.AsFunctionError(err)
	}
	return list[0], nil
}

// DeadLetterQuery selects the dead letters of a page. The SQL functions have no WithoutResponse.
type DeadLetterQuery struct {
	DeadLetterFilter
	// WithoutResponse: only those whose last attempt got no response.
	WithoutResponse bool
}

// DeadLetterRow is one dead letter with everything that is kept of it.
type DeadLetterRow struct {
	DeadLetter
	// BodyError is why PostgreSQL cannot hold the body as jsonb.
	BodyError *string
	// SubscriptionGone and EventGone report whether its event subscription or its event no longer exists.
	SubscriptionGone, EventGone bool
	// RedeliveredFromKind is what RedeliveredFrom is, as in DeliveryDetails.
	RedeliveredFromKind string
}

// facetSample is the number of dead letters, the newest that match, that the facets are counted among.
const facetSample = 10_000

// DeadLetterPage is a page of dead letters, without their bodies, with what they have in common.
type DeadLetterPage struct {
	SearchedPage[DeadLetter, DeadLetterPlace]
	// Facets by name: reason, outcome, status, subscription (topic/subscription), day. Each has its ten most frequent
	// values among the newest 10,000 dead letters that match.
	Facets map[string][]Counted
	// Total is the number of dead letters that match, up to 10,000. Partly: only the newest 20,000 were searched.
	Total  int64
	Partly bool
}

func (q *DeadLetterQuery) args() pgx.NamedArgs {
	return pgx.NamedArgs{
		"topic": q.Topic, "subscription": q.Subscription, "reason": q.Reason, "outcome": q.LastOutcome,
		"event_id": q.EventID, "event_type": q.EventType, "status": q.LastStatus, "no_response": q.WithoutResponse,
		"from": q.DeadLetteredFrom, "until": q.DeadLetteredUntil,
	}
}

// search reports whether no index has the dead letters that the filter matches, in order of time.
func (q *DeadLetterQuery) search() bool {
	if q.EventID != nil {
		return false
	}
	indexed := 0
	for _, given := range []bool{q.Topic != nil, q.Reason != nil, q.EventType != nil, q.LastStatus != nil} {
		if given {
			indexed++
		}
	}
	half := (q.Topic == nil) != (q.Subscription == nil)
	return half || indexed > 1 || q.LastOutcome != nil || q.WithoutResponse
}

// ReadDeadLetters reads a page of dead letters, the newest first. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadDeadLetters(
	ctx context.Context, q DeadLetterQuery, t Turn[DeadLetterPlace],
) (*DeadLetterPage, error) {
	d := DeadLetterPage{Facets: map[string][]Counted{}}
	err := read(ctx, r.db, "dead letters", func(r *reading) {
		d.SearchedPage = readPage[DeadLetter](r, "dead_letters", t, q.search(), q.args())
		d.count(r, q)
	})
	return &d, err
}

// count counts what the filter matches, independently of the page.
func (d *DeadLetterPage) count(r *reading, q DeadLetterQuery) {
	args := q.args()
	args["limit"], args["top"] = facetSample, 10
	partly := q.search() && searchEnd[DeadLetterPlace](r, "dead_letters", args) != nil
	type row struct {
		Facet string
		Counted
	}
	for _, facet := range rows[row](r, "dead_letter_facets", args) {
		d.Facets[facet.Facet] = append(d.Facets[facet.Facet], facet.Counted)
		if facet.Facet == "all" {
			d.Total = facet.Count
		}
	}
	d.Partly = partly && d.Total < facetSample
}

// ReadDeadLetter reads one dead letter; ErrNotFound.
func (r *Reader) ReadDeadLetter(ctx context.Context, id uuid.UUID) (*DeadLetterRow, error) {
	var l DeadLetterRow
	err := read(ctx, r.db, "a dead letter", func(r *reading) {
		l = row[DeadLetterRow](r, "dead_letter", pgx.NamedArgs{"id": id})
	})
	return &l, err
}
