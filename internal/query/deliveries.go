package query

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/internal/catalog"
	"postrider/internal/postgres"
	"postrider/policy"
)

// MaxFilterIDs is the most ids in a filter of an operation. postrider_internal.filter_ids has the same limit.
const MaxFilterIDs = 10_000

// DeliveryFilter is a filter of pending deliveries, as of GET /v1/deliveries.
//
// "" or nil matches all.
type DeliveryFilter struct {
	Topic        string `query:"topic" json:"topic,omitzero" label:"Topic"`
	Subscription string `query:"subscription" json:"subscription,omitzero" label:"Event subscription"`
	// In this state: pending, delivered, dead_lettered, dropped or canceled.
	State string `query:"state" json:"state,omitzero" label:"State" choices:"states"`
	// On this hold: paused, not_validated, probation, admission or rate_limited.
	Hold    string `query:"hold" json:"hold,omitzero" label:"Hold" choices:"holds"`
	Outcome string `query:"lastOutcome" json:"lastOutcome,omitzero" name:"last-outcome" label:"Outcome" suggest:"outcomes"`
	// Id of the event, from the publisher or in postrider.
	Event string `query:"eventId" json:"eventId,omitzero" name:"event-id" label:"Event id" sqluuid:"system_id = ?"`
	// Redelivered by the operation with this id.
	Operation *uuid.UUID `query:"operationId" json:"operationId,omitzero"`
	// Published at this time or later.
	//
	// With From or To the list is in the order of postrider's ids of the events.
	From *time.Time `query:"publishedFrom" json:"publishedFrom,omitzero"`
	To   *time.Time `query:"publishedUntil" json:"publishedUntil,omitzero" name:"until" aliases:"to"`
	// Only deliveries that were created before this time. Operations exclude those that are created later.
	CreatedUntil *time.Time `json:"createdUntil,omitzero" kong:"-"`
	// Ids of deliveries, up to 10,000. Duplicates count once.
	DeliveryIDs []int64 `json:"deliveryIds,omitzero" kong:"-" maxItems:"10000" label:"Selected by id"`
	// Errors: also read the error or response of the last attempt of each delivery that has not succeeded.
	Errors bool `json:"-" kong:"-"`
}

// Scan implements sql.Scanner for a stored filter.
func (f *DeliveryFilter) Scan(stored any) error { return scanFilter(stored, f) }

// Text returns the filter as operations store it.
func (f *DeliveryFilter) Text() (string, error) { return storedFilter(f) }

// DeliveryLine is one event for one event subscription.
type DeliveryLine struct {
	// Id of the delivery.
	DeliveryID int64 `json:"deliveryId" column:"Delivery" list:"/v1/deliveries"`
	// pending, delivered, dead_lettered, dropped or canceled.
	State string `json:"state" column:"State"`
	// While on hold, what it waits for now: paused, not_validated, probation, admission or rate_limited.
	Hold *string `json:"hold" column:"Hold" in:"state"`
	// Type of the event; null after the event's retention.
	EventType *string `json:"eventType" column:"Type" class:"long" none:"partition dropped"`
	// Id of the event from the publisher; null after the event's retention.
	EventID *string `json:"eventId" column:"Event id" class:"long"`
	// Subject of the event; empty if it was erased, null after the event's retention.
	Subject *string `json:"subject" column:"Subject" class:"long" off:""`
	// When postrider accepted the event.
	PublishedAt *time.Time `json:"publishedAt" column:"Published" off:"pages"`
	// Name of the topic.
	Topic string `json:"topic" column:"Topic" in:"subscription"`
	// Name of the event subscription.
	Subscription string `json:"subscription" column:"Event subscription" title:"SUBSCRIPTION" class:"long"`
	// Number of recorded attempts.
	Attempts int `json:"attempts" column:"Attempts" class:"number spare"`
	// Number of attempts that were repeated after a crash, without being counted.
	Reruns int `json:"reruns" column:"Re-runs" in:"attempts" off:""`
	// Outcome of the last attempt, such as Busy.
	LastOutcome *string `json:"lastOutcome" column:"Last outcome" class:"long"`
	// HTTP status of the last attempt; null without a response.
	LastStatus *int `json:"lastStatus" column:"Last status" in:"last_outcome"`
	// Earliest time of the next attempt. Null during a hold and after the end.
	NextAttemptAt *time.Time `json:"nextAttemptAt" column:"Next or ended" title:"NEXT ATTEMPT"`
	// LastError is the error or the beginning of the response of the last attempt; nil unless the filter requests it.
	LastError *string `db:"-" json:"-" column:"Last error" class:"long wide" off:"cli" sql:"(select coalesce(error, left(response_excerpt, 300)) from postrider.delivery_attempts a\n         where a.delivery_id = deliveries.delivery_id or a.batch_id = deliveries.batch_id\n         order by started_at desc limit 1) as last_error"`
	// When it ended; null before.
	FinishedAt *time.Time `json:"finishedAt" column:"Ended" in:"next_attempt_at"`
	// Why it was dead-lettered, dropped or canceled.
	Reason *string `json:"reason" column:"Reason" class:"long" off:"pages"`
	// When the probation sends its next probe. Null for other holds and without one.
	HoldUntil *time.Time `json:"holdUntil" line:"Hold until"`
	// When the last attempt began; null before the first one.
	LastAttemptAt *time.Time `json:"lastAttemptAt" column:"Last attempt" off:""`
	// When the time to live began.
	TimeToLiveSince time.Time `json:"timeToLiveSince" column:"Time to live since" off:""`
	// When its time to live ends. No attempt begins at this time or later. Null after the end.
	ExpiresAt *time.Time `json:"expiresAt" column:"Time to live until" off:""`
	// Batch of the delivery; null without one.
	BatchID *int64 `json:"batchId" column:"Batch" off:""`
	// Id of the event in postrider, a UUID.
	SystemID uuid.UUID `json:"systemId" column:"System id" off:""`
	// Dead letter of the delivery; null without one.
	DeadLetterID *uuid.UUID `json:"deadLetterId" column:"Dead letter" off:""`
	// Dead letter that this delivery redelivers, or the operation that delivered a past event.
	RedeliveredFrom *uuid.UUID `json:"redeliveredFrom" line:"Redelivery of"`
	// Operation that redelivered it; null without one.
	OperationID *uuid.UUID `json:"operationId" line:"Operation"`
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

// HoldReasons are the holds of deliveries.
var HoldReasons = []string{
	catalog.HoldPaused, catalog.HoldNotValidated, catalog.HoldProbation, catalog.HoldAdmission, catalog.HoldRateLimited,
}

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
	page = readPage[DeliveryLine](r, "deliveries", t, search, args)
	if f.Errors {
		readErrors(r, page.Rows)
	}
	return page
}

// readErrors reads the error or response of the last attempt of the deliveries that have not succeeded.
func readErrors(r *reading, deliveries []DeliveryLine) {
	var ids []int64
	var batches []*int64
	var days []time.Time
	lines := map[int64]*DeliveryLine{}
	for i := range deliveries {
		d := &deliveries[i]
		if d.LastAttemptAt == nil || d.LastOutcome != nil && policy.Outcome(*d.LastOutcome).Success() {
			continue
		}
		ids, batches, days = append(ids, d.DeliveryID), append(batches, d.BatchID), append(days, d.LastAttemptAt.UTC())
		lines[d.DeliveryID] = d
	}
	if ids == nil {
		return
	}
	type found struct {
		DeliveryID int64
		Error      string
	}
	args := pgx.NamedArgs{"deliveries": ids, "batches": batches, "days": days}
	for _, f := range rows[found](r, "delivery_errors", args) {
		lines[f.DeliveryID].LastError = &f.Error
	}
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
