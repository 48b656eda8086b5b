package catalog

import (
	"context"
	"fmt"
	"strings"
	"time"

	"postrider/internal/event"
	"postrider/internal/postgres"

	"github.com/jackc/pgx/v5"
)

// AllEvents is the table of all days' events; see EventsOf.
const AllEvents = "postrider_internal.events"

// EventsOf is the table of one day's events, a partition of AllEvents. A statement whose plan is kept locks all
// partitions of AllEvents, and an update of it opens them all.
func EventsOf(day time.Time) string { return AllEvents + "_" + day.Format("20060102") }

// StoredEvent is an accepted event as event filters see it. It has a body only if ReadStoredBodies has read it.
type StoredEvent struct {
	event.Event
	PublishedAt time.Time // zero: the row is gone, or its content was erased
	Bytes       int       // see event.Event.Size
	skipped     bool      // its body was not read: the bodies before it reached the limit
}

// StoredEvents are accepted events by id.
type StoredEvents map[[16]byte]StoredEvent

// Read returns the events with the given ids in this order, up to the first whose body was not read. An event whose row
// is gone is the zero value.
func (s StoredEvents) Read(ids [][16]byte) (events []StoredEvent) {
	for _, id := range ids {
		if s[id].skipped {
			break
		}
		events = append(events, s[id])
	}
	return events
}

// ReadStoredEvents reads events of these days without their bodies: enough for filters that are not advanced. table is
// AllEvents or the only day's partition.
func ReadStoredEvents(
	ctx context.Context, tx pgx.Tx, table string, days []time.Time, ids [][16]byte,
) (StoredEvents, error) {
	rows, _ := tx.Query(ctx, strings.Replace(sql("stored_events"), AllEvents, table, 1), days, ids)
	var id [16]byte
	var e StoredEvent
	columns := []any{&id, &e.Type, &e.Subject, &e.PublishedAt, &e.Bytes, &e.Schema, &e.ID, &e.DataVersion, &e.Source}
	return collectStored(rows, columns, &id, &e, new(*time.Time))
}

// ReadStoredBodies reads events of these days with everything that advanced filters need, until the bodies read reach a
// number of bytes. The first body is always read.
func ReadStoredBodies(
	ctx context.Context, tx pgx.Tx, table string, days []time.Time, ids [][16]byte, bytes int,
) (StoredEvents, error) {
	rows, _ := tx.Query(ctx, strings.Replace(sql("stored_bodies"), AllEvents, table, 1), days, ids, bytes)
	var id [16]byte
	var e StoredEvent
	var at *time.Time
	columns := []any{
		&id, &e.Type, &e.Subject, &e.PublishedAt, &e.Bytes, &e.Schema, &e.ID, &e.Source, &e.DataVersion, &e.Body,
		&e.skipped, &at,
	}
	return collectStored(rows, columns, &id, &e, &at)
}

// collectStored reads the rows of a query, and returns its error. Each row is scanned into id, e and at through
// columns.
func collectStored(
	rows pgx.Rows, columns []any, id *[16]byte, e *StoredEvent, at **time.Time,
) (StoredEvents, error) {
	found := StoredEvents{}
	_, err := pgx.ForEachRow(rows, columns, func() error {
		e.Time = postgres.TimeOrNone(*at)
		e.Bytes += e.Size() - len(e.Body) // a custom event's envelope; the body may not have been read
		found[*id] = *e
		e.Body = nil // the next row needs new memory
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read stored events: %w", err)
	}
	return found, nil
}
