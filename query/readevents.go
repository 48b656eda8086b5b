package query

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

// EventFilter says which events; what is "" or nil leaves all.
type EventFilter struct {
	Topic, Type, Subject, SubjectPrefix string
	// Event is the publisher's id, or postrider's own.
	Event string
	// From and To bound the time of publishing: not before From, before To.
	From, To *time.Time
	// Unmatched: only what no event subscription wanted.
	Unmatched bool
}

// EventLine is one event in a list, without its body.
type EventLine struct {
	SystemID                           uuid.UUID
	Topic, EventID, EventType, Subject string
	Source                             *string
	EventTime                          *time.Time
	PublishedAt                        time.Time
	Schema                             string
	Matched                            *int // nil: published by SQL and not routed yet
	BodyBytes                          int
}

// EventRow is one event as it was accepted.
type EventRow struct {
	EventLine
	TopicID                 int64
	TopicGone               bool
	DataVersion             string
	Traceparent, Tracestate *string
	FilterVersion           *int64
	BodyError               *string
	ErasedAt                *time.Time // when its body and subject were erased
	Body                    []byte
	// Deliveries are those that it is owed to, redeliveries too, the newest first, at most 200.
	Deliveries []DeliveryLine `db:"-"`
}

const (
	eventReport = `SELECT e.id AS system_id, t.name AS topic, e.event_id, e.event_type, e.subject,
		       nullif(e.source, '') AS source, e.event_time, e.published_at, e.schema, e.matched,
		       octet_length(e.body) AS body_bytes`

	// onceOnly leaves out what a redelivery has stored again on a later day.
	onceOnly = `e.day = (e.published_at AT TIME ZONE 'UTC')::date`

	eventFrom = `
  FROM postrider_internal.events e JOIN postrider_internal.topics t ON t.id = e.topic_id `
)

// blind: no index knows which events the filter wants.
func (f *EventFilter) blind() bool {
	return f.Event == "" && (f.Topic != "" || f.Type != "" || f.Subject != "" || f.SubjectPrefix != "" || f.Unmatched)
}

// span are the conditions that the index of ids answers, which is that of their time; a time span also leaves out whole
// days. An id may be idSlack from the time of publishing.
func (f *EventFilter) span(compare string) string {
	where := []string{fmt.Sprintf("(@cursor::uuid IS NULL OR e.id %s @cursor)", compare)}
	if f.From != nil {
		where = append(where, "e.published_at >= @from AND e.id >= @from_id AND e.day >= (@from AT TIME ZONE 'UTC')::date")
	}
	if f.To != nil {
		where = append(where, "e.published_at < @to AND e.id < @to_id AND e.day <= (@to AT TIME ZONE 'UTC')::date")
	}
	return strings.Join(where, " AND ")
}

// bound gives the conditions of span their values.
func (f *EventFilter) bound(args pgx.NamedArgs) {
	if args["from"] = f.From; f.From != nil {
		args["from_id"] = [16]byte(firstID(f.From.Add(-idSlack)))
	}
	if args["to"] = f.To; f.To != nil {
		args["to_id"] = [16]byte(firstID(f.To.Add(idSlack)))
	}
}

// statement is the list's query. The conditions that no index answers stand outside of what is read in order:
// PostgreSQL takes onceOnly for rare, and would sort all events.
func (f *EventFilter) statement(order, compare string) string {
	inside := []string{f.span(compare), fmt.Sprintf("(@end::uuid IS NULL OR NOT e.id %s @end)", compare)}
	outside := []string{onceOnly}
	add := func(where *[]string, set bool, condition string) {
		if set {
			*where = append(*where, condition)
		}
	}
	add(&inside, f.Event != "", "e.id = ANY (@events)")
	add(&outside, f.Topic != "", "e.topic_id = ANY (@topics)")
	add(&outside, f.Type != "", "e.event_type = @type")
	add(&outside, f.Subject != "", "e.subject = @subject")
	add(&outside, f.SubjectPrefix != "", "starts_with(e.subject, @prefix)")
	add(&outside, f.Unmatched, "e.matched = 0")
	return fmt.Sprintf(eventReport+` FROM (SELECT e.* FROM (SELECT * FROM postrider_internal.events e WHERE %[2]s
      ORDER BY e.id %[1]s OFFSET 0) e WHERE %[3]s LIMIT @limit) e
  JOIN postrider_internal.topics t ON t.id = e.topic_id ORDER BY e.id %[1]s`, order, strings.Join(inside, " AND "),
		strings.Join(outside, " AND "))
}

// EventPage is a page of events.
type EventPage struct {
	Page[EventLine]
	// LookedTo is where a look ended that found no more than Rows; nil where it went on to the end of the list.
	LookedTo *uuid.UUID
}

// ReadEvents reads a page of events, the newest first. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadEvents(ctx context.Context, f EventFilter, t Turn[uuid.UUID]) (page EventPage, err error) {
	err = r.db.Read(ctx, "events", func(tx pgx.Tx) error {
		page, err = readEvents(ctx, tx, f, t)
		return err
	})
	return page, err
}

func readEvents(ctx context.Context, tx pgx.Tx, f EventFilter, t Turn[uuid.UUID]) (page EventPage, err error) {
	names, err := (&DeliveryFilter{Topic: f.Topic, Event: f.Event}).scope(ctx, tx)
	if err != nil {
		return page, err
	}
	order, compare := t.way()
	args := t.args(pgx.NamedArgs{
		"topics": names.Topics, "events": names.Events, "type": f.Type, "subject": f.Subject, "prefix": f.SubjectPrefix,
		"end": nil, "look": lookLimit,
	})
	f.bound(args)
	if f.blind() {
		end := fmt.Sprintf(
			"SELECT (SELECT e.id FROM postrider_internal.events e WHERE %s ORDER BY e.id %s OFFSET @look LIMIT 1)",
			f.span(compare), order)
		if err := tx.QueryRow(ctx, end, args).Scan(&page.LookedTo); err != nil {
			return page, err
		}
		args["end"] = page.LookedTo
	}
	rows, err := postgres.Rows[EventLine](ctx, tx, f.statement(order, compare), args)
	page.Page = pageOf(rows, t)
	if len(rows) > t.Limit {
		page.LookedTo = nil
	}
	return page, err
}

// ReadEvent reads one event by postrider's own id, with its deliveries; ErrNotFound.
func (r *Reader) ReadEvent(ctx context.Context, id uuid.UUID) (e *EventRow, err error) {
	const query = eventReport + `, e.topic_id, t.deleted_at IS NOT NULL AS topic_gone, e.data_version, e.traceparent,
       e.tracestate, e.catalogue_version AS filter_version,
       CASE WHEN e.erased_at IS NULL THEN postrider.jsonb_error(e.body) END AS body_error, e.erased_at, e.body` +
		eventFrom + `WHERE e.id = @id ORDER BY e.day LIMIT 1`
	const deliveries = 200
	err = r.db.Read(ctx, "an event", func(tx pgx.Tx) error {
		if e, err = postgres.Row[EventRow](ctx, tx, query, pgx.NamedArgs{"id": [16]byte(id)}); err != nil {
			return err
		}
		page, err := readDeliveries(ctx, tx, DeliveryFilter{Event: id.String()}, Turn[DeliveryPlace]{Limit: deliveries})
		e.Deliveries = page.Rows
		return err
	})
	return e, err
}
