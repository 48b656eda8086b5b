package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// EventFilter says which events; what is "" or nil leaves all.
type EventFilter struct {
	Topic, Type, SubjectPrefix string
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
	eventReport = `SELECT e.id AS system_id, t.name AS topic, e.event_id, e.event_type, e.subject, nullif(e.source, '') AS source, e.event_time, e.published_at, e.schema, e.matched, octet_length(e.body) AS body_bytes`

	// onceOnly leaves out what a redelivery has stored again on a later day.
	onceOnly = `e.day = (e.published_at AT TIME ZONE 'UTC')::date`

	eventFrom = `
  FROM postrider_internal.events e JOIN postrider_internal.topics t ON t.id = e.topic_id `
)

// statement is the list's query. Events are found along the index of their ids, which is that of their time; a time span also leaves
// out whole days.
func (f *EventFilter) statement(order, compare string) string {
	where := []string{onceOnly, fmt.Sprintf("(@cursor::uuid IS NULL OR e.id %s @cursor)", compare)}
	add := func(set bool, condition string) {
		if set {
			where = append(where, condition)
		}
	}
	add(f.Topic != "", "e.topic_id = ANY (@topics)")
	add(f.Event != "", "e.id = ANY (@events)")
	add(f.Type != "", "e.event_type = @type")
	add(f.SubjectPrefix != "", "starts_with(e.subject, @prefix)")
	add(f.Unmatched, "e.matched = 0")
	add(f.From != nil, "e.published_at >= @from AND e.day >= (@from AT TIME ZONE 'UTC')::date")
	add(f.To != nil, "e.published_at < @to AND e.day <= (@to AT TIME ZONE 'UTC')::date")
	return eventReport + eventFrom + "WHERE " + strings.Join(where, " AND ") + fmt.Sprintf(" ORDER BY e.id %s LIMIT @limit", order)
}

// ReadEvents reads a page of events, the newest first. ErrTooSlow, ErrUnavailable.
func (s *Store) ReadEvents(ctx context.Context, f EventFilter, t Turn[uuid.UUID]) (page Page[EventLine], err error) {
	err = s.reading(ctx, "events", func(tx pgx.Tx) error {
		names, err := (&DeliveryFilter{Topic: f.Topic, Event: f.Event}).scope(ctx, tx)
		if err != nil {
			return err
		}
		order, compare := t.way()
		rows, err := rowsOf[EventLine](ctx, tx, f.statement(order, compare), t.args(pgx.NamedArgs{
			"topics": names.Topics, "events": names.Events, "type": f.Type, "prefix": f.SubjectPrefix, "from": f.From, "to": f.To,
		}))
		page = pageOf(rows, t)
		return err
	})
	return page, err
}

// ReadEvent reads one event by postrider's own id, with its deliveries; ErrNotFound.
func (s *Store) ReadEvent(ctx context.Context, id uuid.UUID) (e *EventRow, err error) {
	const query = eventReport + `, e.topic_id, t.deleted_at IS NOT NULL AS topic_gone, e.data_version, e.traceparent, e.tracestate, e.catalogue_version AS filter_version,
       CASE WHEN e.erased_at IS NULL THEN postrider.jsonb_error(e.body) END AS body_error, e.erased_at, e.body` + eventFrom + `WHERE e.id = @id ORDER BY e.day LIMIT 1`
	const deliveries = 200
	err = s.reading(ctx, "an event", func(tx pgx.Tx) error {
		if e, err = rowOf[EventRow](ctx, tx, query, pgx.NamedArgs{"id": [16]byte(id)}); err != nil {
			return err
		}
		page, err := readDeliveries(ctx, tx, DeliveryFilter{Event: id.String()}, Turn[int64]{Limit: deliveries})
		e.Deliveries = page.Rows
		return err
	})
	return e, err
}
