package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// DeliveryFilter says which deliveries; what is "" leaves all.
type DeliveryFilter struct {
	Topic, Subscription, State, Hold, Outcome string
	// Event is the publisher's id of the event, or postrider's own.
	Event string
}

// DeliveryLine is one delivery in a list.
type DeliveryLine struct {
	DeliveryID                  int64
	Topic, Subscription, State  string
	EventID, EventType, Subject *string // nil once the event's day was dropped
	SystemID                    uuid.UUID
	Hold, Reason, LastOutcome   *string
	Attempts, Reruns            int
	LastStatus                  *int
	NextAttemptAt               *time.Time
	LastAttemptAt, FinishedAt   *time.Time
	OwedSince                   time.Time
	BatchID                     *int64
	RedeliveredFrom             *uuid.UUID
	DeadLetterID                *uuid.UUID
}

// Both tables of deliveries are read along the index of their ids, or of the event subscription's ids, and no further than the page:
// the view postrider.deliveries joins first.
const (
	pendingPart = `SELECT d.id, d.subscription_id, d.topic_id, d.event_uuid, d.event_day, 'pending' AS state, coalesce(d.hold, b.hold) AS hold, NULL::text AS reason, d.attempts, d.reruns,
        coalesce(b.next_attempt_at, d.next_attempt_at) AS next_attempt_at, d.last_attempt_at, d.last_outcome, d.last_status, d.owed_since, NULL::timestamptz AS finished_at, d.batch_id, d.redelivered_from, NULL::uuid AS dead_letter_id
   FROM postrider_internal.deliveries d LEFT JOIN postrider_internal.batches b ON b.id = d.batch_id`
	finishedPart = `SELECT d.id, d.subscription_id, d.topic_id, d.event_uuid, d.event_day, d.state, NULL::text, d.reason, d.attempts, d.reruns,
        NULL::timestamptz, d.last_attempt_at, d.last_outcome, d.last_status, d.owed_since, d.finished_at, d.batch_id, d.redelivered_from, d.dead_letter_id
   FROM postrider_internal.delivery_history d`

	deliveryList = `
SELECT u.id AS delivery_id, t.name AS topic, s.name AS subscription, e.event_id, e.event_type, e.subject, u.event_uuid AS system_id, u.state, u.hold, u.reason, u.attempts, u.reruns,
       u.next_attempt_at, u.last_attempt_at, u.last_outcome, u.last_status, u.owed_since, u.finished_at, u.batch_id, u.redelivered_from, u.dead_letter_id
  FROM (SELECT * FROM (%[1]s) both_of(id, subscription_id, topic_id, event_uuid, event_day, state, hold, reason, attempts, reruns, next_attempt_at, last_attempt_at, last_outcome, last_status,
               owed_since, finished_at, batch_id, redelivered_from, dead_letter_id) ORDER BY id %[2]s LIMIT @limit) u
  JOIN postrider_internal.event_subscriptions s ON s.id = u.subscription_id
  JOIN postrider_internal.topics t ON t.id = u.topic_id
  LEFT JOIN postrider_internal.events e ON e.id = u.event_uuid AND e.day = u.event_day
 ORDER BY u.id %[2]s`
)

// scope is what a filter's names stand for: an event subscription that was deleted and made again has several ids.
type scope struct {
	Topics, Subscriptions []int64
	Events                [][16]byte
}

const scopeStatement = `
SELECT (SELECT coalesce(array_agg(id), '{}') FROM postrider_internal.topics WHERE name = @topic) AS topics,
       (SELECT coalesce(array_agg(s.id), '{}') FROM postrider_internal.event_subscriptions s JOIN postrider_internal.topics t ON t.id = s.topic_id
         WHERE s.name = @subscription AND (@topic = '' OR t.name = @topic)) AS subscriptions,
       (SELECT coalesce(array_agg(id), '{}') FROM (SELECT id FROM postrider_internal.events WHERE event_id = @event LIMIT 1000) few) AS events`

func (f *DeliveryFilter) scope(ctx context.Context, tx pgx.Tx) (*scope, error) {
	found, err := rowOf[scope](ctx, tx, scopeStatement, pgx.NamedArgs{"topic": f.Topic, "subscription": f.Subscription, "event": f.Event})
	if id, wrong := uuid.Parse(f.Event); wrong == nil && err == nil {
		found.Events = append(found.Events, id)
	}
	return found, err
}

// statement puts the query together of our own words; what the filter says are its arguments.
func (f *DeliveryFilter) statement(order, compare string) string {
	var parts []string
	if f.State == "" || f.State == "pending" {
		parts = append(parts, f.part(pendingPart, "coalesce(d.hold, b.hold)", order, compare))
	}
	if f.State != "pending" && f.Hold == "" {
		parts = append(parts, f.part(finishedPart, "", order, compare))
	}
	if len(parts) == 0 {
		parts = append(parts, pendingPart+" WHERE false")
	}
	return fmt.Sprintf(deliveryList, strings.Join(parts, " UNION ALL "), order)
}

func (f *DeliveryFilter) part(columns, hold, order, compare string) string {
	where := []string{fmt.Sprintf("(@cursor::bigint IS NULL OR d.id %s @cursor)", compare)}
	add := func(set bool, condition string) {
		if set {
			where = append(where, condition)
		}
	}
	add(f.Topic != "" && f.Subscription == "", "d.topic_id = ANY (@topics)")
	add(f.Event != "", "d.event_uuid = ANY (@events)")
	add(f.Outcome != "", "d.last_outcome = @outcome")
	add(f.Hold != "" && hold != "", hold+" = @hold")
	add(f.State != "" && hold == "", "d.state = @state")
	add(f.Subscription != "", "d.subscription_id = one.id")
	part := fmt.Sprintf("(%s WHERE %s ORDER BY d.id %s LIMIT @limit)", columns, strings.Join(where, " AND "), order)
	if f.Subscription != "" {
		return "(SELECT x.* FROM unnest(@subscriptions::bigint[]) AS one(id) CROSS JOIN LATERAL " + part + " x)"
	}
	return part
}

// ReadDeliveries reads a page of deliveries, unfinished and finished, the newest made first. ErrTooSlow, ErrUnavailable.
func (s *Store) ReadDeliveries(ctx context.Context, f DeliveryFilter, t Turn[int64]) (page Page[DeliveryLine], err error) {
	err = s.reading(ctx, "deliveries", func(tx pgx.Tx) error {
		page, err = readDeliveries(ctx, tx, f, t)
		return err
	})
	return page, err
}

func readDeliveries(ctx context.Context, tx pgx.Tx, f DeliveryFilter, t Turn[int64]) (page Page[DeliveryLine], err error) {
	names, err := f.scope(ctx, tx)
	if err != nil {
		return page, err
	}
	order, compare := t.way()
	rows, err := rowsOf[DeliveryLine](ctx, tx, f.statement(order, compare), t.args(pgx.NamedArgs{
		"topics": names.Topics, "subscriptions": names.Subscriptions, "events": names.Events,
		"outcome": f.Outcome, "hold": f.Hold, "state": f.State,
	}))
	return pageOf(rows, t), err
}
