package query

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/internal/catalog"
	"postrider/internal/postgres"
)

// MaxFilterIDs is the most ids in a filter of an operation. postrider_internal.filter_ids has the same limit.
const MaxFilterIDs = 10_000

// DeliveryFilter selects deliveries; "" or nil = all.
type DeliveryFilter struct {
	Topic        string `query:"topic" json:"topic,omitzero"`
	Subscription string `query:"subscription" json:"subscription,omitzero"`
	State        string `query:"state" json:"state,omitzero" enum:"pending,delivered,dead_lettered,dropped,canceled"`
	Hold         string `query:"hold" json:"hold,omitzero" enum:"paused,not_validated,probation,admission,rate_limited"`
	Outcome      string `query:"lastOutcome" json:"lastOutcome,omitzero"`
	// Event is the publisher's id of the event, or postrider's.
	Event string `query:"eventId" json:"eventId,omitzero"`
	// Operation is the one that redelivered them.
	Operation *uuid.UUID `json:"operationId,omitzero"`
	// From and To bound the time of publishing: From is included, To is not. With one of them the list is in the order
	// of postrider's ids of the events.
	From *time.Time `query:"publishedFrom" json:"publishedFrom,omitzero"`
	To   *time.Time `query:"publishedUntil" json:"publishedUntil,omitzero"`
	// CreatedUntil excludes deliveries that were created at this time or later; those of finished deliveries are not
	// stored. Only operations have it, and DeliveryIDs: at most 10,000; nil for all.
	CreatedUntil *time.Time `json:"createdUntil,omitzero"`
	DeliveryIDs  []int64    `json:"deliveryIds,omitzero" maxItems:"10000"`
}

// storedDeliveryFilter is a DeliveryFilter as operations store it.
type storedDeliveryFilter struct {
	Topic        string     `json:"topic,omitzero"`
	Subscription string     `json:"subscription,omitzero"`
	State        string     `json:"state,omitzero"`
	Hold         string     `json:"hold,omitzero"`
	Outcome      string     `json:"last_outcome,omitzero"`
	Event        string     `json:"event_id,omitzero"`
	Operation    *uuid.UUID `json:"operation_id,omitzero"`
	From         *time.Time `json:"published_from,omitzero"`
	To           *time.Time `json:"published_until,omitzero"`
	CreatedUntil *time.Time `json:"created_until,omitzero"`
	DeliveryIDs  []int64    `json:"delivery_ids,omitzero"`
}

// Scan implements sql.Scanner for a stored filter.
func (f *DeliveryFilter) Scan(stored any) error {
	return json.Unmarshal(fmt.Appendf(nil, "%s", stored), (*storedDeliveryFilter)(f))
}

// Text returns the filter as operations store it.
func (f *DeliveryFilter) Text() (string, error) {
	text, err := json.Marshal((*storedDeliveryFilter)(f))
	if err != nil {
		return "", fmt.Errorf("write a filter of deliveries: %w", err)
	}
	return string(text), nil
}

// DeliveryLine is one delivery in a list.
type DeliveryLine struct {
	DeliveryID   int64     `json:"deliveryId"`
	Topic        string    `json:"topic"`
	Subscription string    `json:"subscription"`
	SystemID     uuid.UUID `json:"systemId"`
	// EventID, EventType and Subject are nil once the event's day was dropped.
	EventID   *string `json:"eventId"`
	EventType *string `json:"eventType"`
	Subject   *string `json:"subject"`
	// PublishedAt is nil once the event's day was dropped.
	PublishedAt *time.Time `json:"publishedAt"`
	State       string     `json:"state"`
	Hold        *string    `json:"hold"`
	Reason      *string    `json:"reason"`
	Attempts    int        `json:"attempts"`
	Reruns      int        `json:"reruns"`
	// NextAttemptAt is nil on hold and when finished; never past.
	NextAttemptAt *time.Time `json:"nextAttemptAt"`
	// HoldUntil, of a hold for probation, is when the next probe is sent.
	HoldUntil       *time.Time `json:"holdUntil"`
	LastAttemptAt   *time.Time `json:"lastAttemptAt"`
	LastOutcome     *string    `json:"lastOutcome"`
	LastStatus      *int       `json:"lastStatus"`
	TimeToLiveSince time.Time  `json:"timeToLiveSince"`
	// ExpiresAt is when the time to live ends; nil when finished.
	ExpiresAt       *time.Time `json:"expiresAt"`
	FinishedAt      *time.Time `json:"finishedAt"`
	BatchID         *int64     `json:"batchId"`
	RedeliveredFrom *uuid.UUID `json:"redeliveredFrom"`
	// OperationID is the operation that redelivered it.
	OperationID  *uuid.UUID `json:"operationId"`
	DeadLetterID *uuid.UUID `json:"deadLetterId"`
	Lineage
}

// DeliveryPlace is the position of a delivery in a list. A list by time of publishing uses both ids, so that it can
// continue after a delivery that was deleted. Other lists use DeliveryID.
type DeliveryPlace struct {
	SystemID   uuid.UUID
	DeliveryID int64
}

// Place returns the position of the delivery.
func (l *DeliveryLine) Place() DeliveryPlace { return DeliveryPlace{l.SystemID, l.DeliveryID} }

// DeliveryStates and HoldReasons are the values that lists can be filtered by.
var (
	DeliveryStates = []string{"pending", "delivered", "dead_lettered", "dropped", "canceled"}
	HoldReasons    = []string{
		catalog.HoldPaused, catalog.HoldNotValidated, catalog.HoldProbation, catalog.HoldAdmission, catalog.HoldRateLimited,
	}
)

// ReadDeliveries reads a page of deliveries, pending and finished, the newest first. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadDeliveries(
	ctx context.Context, f DeliveryFilter, t Turn[DeliveryPlace],
) (page SearchedPage[DeliveryLine, DeliveryPlace], err error) {
	err = read(ctx, r.db, "deliveries", func(r *reading) { page = readDeliveries(r, f, t) })
	return page, err
}

func readDeliveries(
	r *reading, f DeliveryFilter, t Turn[DeliveryPlace],
) (page SearchedPage[DeliveryLine, DeliveryPlace]) {
	args, search, some := bindDeliveries(r, f, f.From != nil || f.To != nil)
	if !some {
		return page
	}
	return readPage[DeliveryLine](r, "deliveries", t, search, args)
}

// bindDeliveries returns the arguments of a filter. timed: the list is in the order of the ids of the events. search:
// no index has the rows that it matches. some is false if it can match none.
func bindDeliveries(r *reading, f DeliveryFilter, timed bool) (args pgx.NamedArgs, search, some bool) {
	names := readNames(r, f.Topic, f.Subscription, f.Event, topicShare+1)
	args = pgx.NamedArgs{
		"topics": names.Topics, "events": names.Events, "timed": timed, "from": f.From, "to": f.To,
		"state": given(f.State), "hold": given(f.Hold), "outcome": given(f.Outcome), "operation": f.Operation,
		"created_until": f.CreatedUntil, "ids": f.DeliveryIDs,
	}
	bySubscription := names.bind(args, f.Topic, f.Subscription, timed)
	if !bySubscription && f.Subscription == "" {
		args["subscriptions"] = nil // the topic is enough
	}
	if timed {
		span := pgx.NamedArgs{}
		bindSpan(span, f.From, f.To)
		edges := row[struct{ First, Last *uuid.UUID }](r, "events_edges", span)
		if edges.First == nil {
			return nil, false, false // no event of this time is kept
		}
		args["first"], args["last"] = *edges.First, *edges.Last
	}
	search = f.Event == "" && (f.Outcome != "" || f.Hold != "" || f.State != "" && f.State != "pending" ||
		f.Topic+f.Subscription != "" && !bySubscription)
	return args, search, true
}

// FoundDeliveries are the next pending deliveries of an operation. Reached is the last one that was checked.
type FoundDeliveries struct {
	IDs     []int64
	Reached int64
	Last    bool
}

// NextDeliveries finds up to most pending deliveries that a filter matches and that were created before a time, among
// the next ones after an id. The zero time is no limit.
func NextDeliveries(
	ctx context.Context, tx pgx.Tx, f DeliveryFilter, until time.Time, after int64, most int,
) (found FoundDeliveries, err error) {
	found = FoundDeliveries{IDs: []int64{}, Reached: after, Last: true}
	if f.State != "" && f.State != "pending" {
		return found, nil
	}
	if f.State = "pending"; !until.IsZero() && (f.CreatedUntil == nil || until.Before(*f.CreatedUntil)) {
		f.CreatedUntil = &until
	}
	r := &reading{ctx: ctx, tx: tx}
	args, _, _ := bindDeliveries(r, f, false)
	args["limit"], args["backwards"], args["end"] = most, true, nil
	bindKey(args, "cursor", &DeliveryPlace{DeliveryID: after})
	var end *DeliveryPlace
	if f.Event == "" && f.Operation == nil && f.DeliveryIDs == nil {
		end = searchEnd[DeliveryPlace](r, "pending_deliveries", args)
	}
	if r.err != nil {
		return found, r.err
	}
	found.IDs, err = postgres.Values[int64](ctx, tx, sql("pending_deliveries"), args)
	if len(found.IDs) == most {
		found.Reached, found.Last = found.IDs[most-1], false
	} else if end != nil {
		found.Reached, found.Last = end.DeliveryID, false
	}
	return found, err
}

// CountDeliveries counts the pending deliveries that a filter matches, for a little more than 5 s. The errors of
// search.
func (r *Reader) CountDeliveries(ctx context.Context, f DeliveryFilter) (counted Matched, err error) {
	err = r.search(ctx, 2*countTime, "deliveries", func(r *reading) {
		var found FoundDeliveries
		for began := time.Now(); !found.Last && !counted.AtLeast; {
			if found, r.err = NextDeliveries(r.ctx, r.tx, f, time.Time{}, found.Reached, ScanStep); r.err != nil {
				return
			}
			counted.Matched += int64(len(found.IDs))
			counted.AtLeast = !found.Last && time.Since(began) > countTime
		}
	})
	return counted, err
}
