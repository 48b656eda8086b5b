package query

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/catalog"
	"postrider/postgres"
)

// DeliveryFilter says which deliveries; what is "" leaves all.
type DeliveryFilter struct {
	Topic, Subscription, State, Hold, Outcome string
	// Event is the publisher's id of the event, or postrider's own.
	Event string
	// Operation is the one that redelivered them.
	Operation *uuid.UUID
	// From and To bound the time of the event's publishing: not before From, before To. A list that has one of them runs
	// in the order of the events' own ids, which an index knows.
	From, To *time.Time
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
	NextAttemptAt               *time.Time // nil on hold and when finished; never past
	HoldUntil                   *time.Time // of a probation's hold: when the next probe is let through
	ExpiresAt                   *time.Time // when the time to live ends; nil when finished
	LastAttemptAt, FinishedAt   *time.Time
	OwedSince                   time.Time
	BatchID                     *int64
	RedeliveredFrom             *uuid.UUID
	OperationID                 *uuid.UUID // the operation that redelivered it
	DeadLetterID                *uuid.UUID
}

// DeliveryPlace is where a delivery stands in a list. A list that runs by the time of publishing goes by both, so that
// it goes on also behind a delivery that is not kept any more; all others go by DeliveryID alone.
type DeliveryPlace struct {
	SystemID   uuid.UUID
	DeliveryID int64
}

// Place is where the delivery stands.
func (l *DeliveryLine) Place() DeliveryPlace { return DeliveryPlace{l.SystemID, l.DeliveryID} }

// DeliveryStates and HoldReasons are the words that lists are filtered by.
var (
	DeliveryStates = []string{"pending", "delivered", "dead_lettered", "dropped", "canceled"}
	HoldReasons    = []string{catalog.HoldPaused, catalog.HoldNotValidated, catalog.HoldProbation, catalog.HoldAdmission}
)

// Both tables of deliveries are read along the index of their ids, or of the event subscription's ids, and no further
// than the page: the view postrider.deliveries joins first.
const (
	pendingPart = `SELECT d.id, d.subscription_id, d.topic_id, d.event_uuid, d.event_day, 'pending' AS state,
          coalesce(d.hold, b.hold) AS hold, NULL::text AS reason, d.attempts, d.reruns,
        CASE WHEN coalesce(d.hold, b.hold) IS NULL THEN greatest(coalesce(b.next_attempt_at, d.next_attempt_at),
            now()) END AS next_attempt_at,
        d.last_attempt_at, d.last_outcome, d.last_status, d.owed_since, NULL::timestamptz AS finished_at, d.batch_id,
        d.redelivered_from, d.operation_id, NULL::uuid AS dead_letter_id
   FROM postrider_internal.deliveries d LEFT JOIN postrider_internal.batches b ON b.id = d.batch_id`
	finishedPart = `SELECT d.id, d.subscription_id, d.topic_id, d.event_uuid, d.event_day, d.state, NULL::text, d.reason,
          d.attempts, d.reruns,
        NULL::timestamptz, d.last_attempt_at, d.last_outcome, d.last_status, d.owed_since, d.finished_at, d.batch_id,
        d.redelivered_from,
        d.operation_id, d.dead_letter_id
   FROM postrider_internal.delivery_history d`

	deliveryList = `
SELECT u.id AS delivery_id, t.name AS topic, s.name AS subscription, e.event_id, e.event_type, e.subject,
       u.event_uuid AS system_id, u.state, u.hold, u.reason, u.attempts, u.reruns,
       u.next_attempt_at,
       CASE WHEN u.state = 'pending' THEN postrider_internal.expires_at(u.id, u.owed_since,
           s.event_time_to_live_in_minutes,
            t.event_retention_in_days, (SELECT coalesce(max(n.time_scale), 1) FROM postrider_internal.nodes n), p,
            st) END AS expires_at,
       CASE WHEN u.hold = 'probation' AND st.hold IS NULL AND r.since IS NOT NULL
           THEN greatest(r.until, now()) END AS hold_until,
       u.last_attempt_at, u.last_outcome, u.last_status, u.owed_since, u.finished_at,
       u.batch_id, u.redelivered_from, u.operation_id, u.dead_letter_id
  FROM (SELECT * FROM (%[1]s) both_of(id, subscription_id, topic_id, event_uuid, event_day, state, hold, reason,
      attempts, reruns, next_attempt_at, last_attempt_at,
               last_outcome, last_status, owed_since, finished_at, batch_id, redelivered_from, operation_id,
               dead_letter_id) ORDER BY %[2]s LIMIT @limit) u
  JOIN postrider_internal.event_subscriptions s ON s.id = u.subscription_id
  JOIN postrider_internal.topics t ON t.id = u.topic_id
  LEFT JOIN postrider_internal.events e ON e.id = u.event_uuid AND e.day = u.event_day
  JOIN postrider_internal.retry_policies p ON p.name = s.retry_policy
  LEFT JOIN postrider_internal.event_subscription_states st ON st.subscription_id = s.id
  LEFT JOIN postrider_internal.probations r
         ON r.since IS NOT NULL AND r.rest_key = postrider_internal.rest_key(p.probation_scope, s.endpoint_hash, s.id)
 ORDER BY %[3]s`
)

// scope is what a filter's names stand for: an event subscription that was deleted and made again has several ids.
type scope struct {
	Topics, Subscriptions []int64
	Events                [][16]byte
}

// topicShare is up to how many event subscriptions a topic's deliveries are read along the index of each of them.
const topicShare = 50

const scopeStatement = `
SELECT (SELECT coalesce(array_agg(id), '{}') FROM postrider_internal.topics WHERE name = @topic) AS topics,
       (SELECT coalesce(array_agg(id), '{}') FROM (SELECT s.id FROM postrider_internal.event_subscriptions s
           JOIN postrider_internal.topics t ON t.id = s.topic_id
         WHERE CASE @subscription WHEN '' THEN t.name = @topic ELSE s.name = @subscription
             AND (@topic = '' OR t.name = @topic) END LIMIT @share) few) AS subscriptions,
       (SELECT coalesce(array_agg(id), '{}') FROM (SELECT id FROM postrider_internal.events WHERE event_id = @event
           LIMIT 1000) few) AS events`

func (f *DeliveryFilter) scope(ctx context.Context, tx pgx.Tx) (*scope, error) {
	share := topicShare + 1
	if f.Subscription != "" {
		share = math.MaxInt32
	}
	found, err := postgres.Row[scope](ctx, tx, scopeStatement,
		pgx.NamedArgs{"topic": f.Topic, "subscription": f.Subscription, "event": f.Event, "share": share})
	if id, wrong := uuid.Parse(f.Event); wrong == nil && err == nil {
		found.Events = append(found.Events, id)
	}
	return found, err
}

// search is a filter with what its names stand for.
type search struct {
	*DeliveryFilter
	order, compare string
	// bySubscription: the rows are read along the index of each event subscription that the filter names.
	bySubscription bool
}

func (f *DeliveryFilter) search(names *scope, order, compare string) search {
	named := f.Subscription != "" || f.Topic != "" && len(names.Subscriptions) <= topicShare
	return search{f, order, compare, named && !f.timed()}
}

// timed: the rows are read along the index of their events' ids.
func (f *DeliveryFilter) timed() bool { return f.From != nil || f.To != nil }

// sorted is the order of the rows.
func (f *search) sorted(alias string) string {
	if f.timed() {
		return fmt.Sprintf("%[1]s.event_uuid %[2]s, %[1]s.id %[2]s", alias, f.order)
	}
	return alias + ".id " + f.order
}

// behind are the rows that come after the cursor, in the span of time that is asked for.
func (f *search) behind() string {
	if f.Operation != nil {
		return "d.operation_id = @operation AND " + f.behindCursor()
	}
	return f.behindCursor()
}

func (f *search) behindCursor() string {
	if f.timed() {
		return fmt.Sprintf("(@cursor::bigint IS NULL OR (d.event_uuid, d.id) %s (@cursor_event::uuid, @cursor)) "+
			"AND d.event_uuid BETWEEN @first::uuid AND @last::uuid", f.compare)
	}
	return fmt.Sprintf("(@cursor::bigint IS NULL OR d.id %s @cursor)", f.compare)
}

// before are the rows up to the end of a look.
func (f *search) before() string {
	if f.timed() {
		// In words that the index knows, which NOT (…) < (…) is not: a day's table that is behind the end would be read
		// through for its first row.
		within := map[string]string{"<": ">=", ">": "<="}[f.compare]
		return fmt.Sprintf("(@end::bigint IS NULL OR (d.event_uuid, d.id) %s (@end_event::uuid, @end))", within)
	}
	return fmt.Sprintf("(@end::bigint IS NULL OR NOT d.id %s @end)", f.compare)
}

// blind: no index knows which rows the filter wants.
func (f *search) blind() bool {
	return f.Event == "" && (f.Outcome != "" || f.Hold != "" || f.State != "" && f.State != "pending" ||
		f.Topic+f.Subscription != "" && !f.bySubscription)
}

// statement puts the query together of our own words; what the filter says are its arguments.
func (f *search) statement() string {
	var parts []string
	if f.State == "" || f.State == "pending" {
		parts = append(parts, f.part(pendingPart, "coalesce(d.hold, b.hold)"))
	}
	if f.State != "pending" && f.Hold == "" {
		parts = append(parts, f.part(finishedPart, ""))
	}
	if len(parts) == 0 {
		parts = append(parts, pendingPart+" WHERE false")
	}
	return fmt.Sprintf(deliveryList, strings.Join(parts, " UNION ALL "), f.sorted("both_of"), f.sorted("u"))
}

// end is the row that a look of lookLimit rows along each index comes to, no row where that is all of them.
func (f *search) end() string {
	look := func(table string) string {
		from := fmt.Sprintf(
			"SELECT d.id, d.event_uuid FROM postrider_internal.%s d WHERE %s %%s ORDER BY %s OFFSET @look LIMIT 1", table,
			f.behind(), f.sorted("d"))
		if f.bySubscription {
			return "(SELECT x.* FROM unnest(@subscriptions::bigint[]) AS one(id) CROSS JOIN LATERAL (" +
				fmt.Sprintf(from, "AND d.subscription_id = one.id") + ") x)"
		}
		return "(" + fmt.Sprintf(from, "") + ")"
	}
	return fmt.Sprintf("SELECT id, event_uuid FROM (%s UNION ALL %s) ends ORDER BY %s LIMIT 1", look("deliveries"),
		look("delivery_history"), f.sorted("ends"))
}

func (f *search) part(columns, hold string) string {
	where := []string{f.behind(), f.before()}
	add := func(set bool, condition string) {
		if set {
			where = append(where, condition)
		}
	}
	add(f.Topic != "" && !f.bySubscription, "d.topic_id = ANY (@topics)")
	add(f.Event != "", "d.event_uuid = ANY (@events)")
	add(f.Outcome != "", "d.last_outcome = @outcome")
	add(f.Hold != "" && hold != "", hold+" = @hold")
	add(f.State != "" && hold == "", "d.state = @state")
	add(f.bySubscription, "d.subscription_id = one.id")
	add(f.Subscription != "" && !f.bySubscription, "d.subscription_id = ANY (@subscriptions)")
	// A value and not EXISTS, which PostgreSQL would make a join of, along all events.
	add(f.timed(), `(SELECT (@from::timestamptz IS NULL OR e.published_at >= @from) AND (@to::timestamptz IS NULL
                           OR e.published_at < @to)
                       FROM postrider_internal.events e WHERE e.id = d.event_uuid AND e.day = d.event_day)`)
	part := fmt.Sprintf("(%s WHERE %s ORDER BY %s LIMIT @limit)", columns, strings.Join(where, " AND "), f.sorted("d"))
	if f.bySubscription {
		return "(SELECT x.* FROM unnest(@subscriptions::bigint[]) AS one(id) CROSS JOIN LATERAL " + part + " x)"
	}
	return part
}

// DeliveryPage is a page of deliveries.
type DeliveryPage struct {
	Page[DeliveryLine]
	// LookedTo is where a look ended that found no more than Rows; nil where it went on to the end of the list.
	LookedTo *DeliveryPlace
}

// ReadDeliveries reads a page of deliveries, unfinished and finished, the newest made first. ErrTooSlow,
// ErrUnavailable.
func (r *Reader) ReadDeliveries(
	ctx context.Context, f DeliveryFilter, t Turn[DeliveryPlace],
) (page DeliveryPage, err error) {
	err = r.db.Read(ctx, "deliveries", func(tx pgx.Tx) error {
		page, err = readDeliveries(ctx, tx, f, t)
		return err
	})
	return page, err
}

func readDeliveries(
	ctx context.Context, tx pgx.Tx, f DeliveryFilter, t Turn[DeliveryPlace],
) (page DeliveryPage, err error) {
	names, err := f.scope(ctx, tx)
	if err != nil {
		return page, err
	}
	order, compare := t.way()
	one := f.search(names, order, compare)
	args := pgx.NamedArgs{
		"cursor": nil, "limit": t.Limit + 1,
		"topics": names.Topics, "subscriptions": names.Subscriptions, "events": names.Events,
		"outcome": f.Outcome, "hold": f.Hold, "state": f.State, "operation": f.Operation, "end": nil, "look": lookLimit,
	}
	if from := t.cursor(); from != nil {
		args["cursor"], args["cursor_event"] = from.DeliveryID, [16]byte(from.SystemID)
	}
	if one.bySubscription {
		args["look"] = lookEach(len(names.Subscriptions))
	}
	if f.timed() {
		if kept, err := f.span(ctx, tx, args); err != nil || !kept {
			return page, err
		}
	}
	if one.blind() {
		if err := page.look(ctx, tx, one.end(), args); err != nil {
			return page, err
		}
	}
	rows, err := postgres.Rows[DeliveryLine](ctx, tx, one.statement(), args)
	page.Page = pageOf(rows, t)
	if len(rows) > t.Limit {
		page.LookedTo = nil
	}
	return page, err
}

// look finds where a look ends, and tells the list's query.
func (p *DeliveryPage) look(ctx context.Context, tx pgx.Tx, end string, args pgx.NamedArgs) error {
	found, err := postgres.Row[struct {
		ID        int64
		EventUUID uuid.UUID
	}](ctx, tx, end, args)
	if errors.Is(err, postgres.ErrNotFound) {
		return nil
	}
	if err == nil {
		p.LookedTo = &DeliveryPlace{found.EventUUID, found.ID}
		args["end"], args["end_event"] = found.ID, [16]byte(found.EventUUID)
	}
	return err
}

// span turns a time of publishing into events' ids; an id may be idSlack from it, so the events are asked. False: no
// event is kept of that time.
func (f *DeliveryFilter) span(ctx context.Context, tx pgx.Tx, args pgx.NamedArgs) (kept bool, err error) {
	events := EventFilter{From: f.From, To: f.To}
	asked := pgx.NamedArgs{"cursor": nil}
	events.bound(asked)
	edges := fmt.Sprintf(`SELECT (SELECT e.id FROM postrider_internal.events e WHERE %[1]s ORDER BY e.id LIMIT 1),
		       (SELECT e.id FROM postrider_internal.events e WHERE %[1]s ORDER BY e.id DESC LIMIT 1)`, events.span("<"))
	var first, last *uuid.UUID
	if err := tx.QueryRow(ctx, edges, asked).Scan(&first, &last); err != nil || first == nil {
		return false, err
	}
	args["from"], args["to"], args["first"], args["last"] = f.From, f.To, [16]byte(*first), [16]byte(*last)
	return true, nil
}
