package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/filter"
	"postrider/internal/postgres"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// SubscriptionFilter is the filter of an event subscription with its topic.
type SubscriptionFilter struct {
	// Topic has no access keys.
	Topic  catalog.Topic
	Filter filter.Filter
}

// ReadFilter reads the filter of an event subscription. It needs no encryption key. ErrNotFound.
func ReadFilter(ctx context.Context, pool *pgxpool.Pool, topic, name string) (*SubscriptionFilter, error) {
	var (
		f      SubscriptionFilter
		filter []byte
	)
	t := &f.Topic
	row := pool.QueryRow(ctx, sql("filter"), topic, name)
	err := row.Scan(&t.ID, &t.Name, &t.Kind, &t.InputSchema, &t.InputSchemaMapping, &filter)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("event subscription %q of topic %q: %w", name, topic, postgres.ErrNotFound)
	}
	if err == nil {
		err = json.Unmarshal(filter, &f.Filter)
	}
	if err != nil {
		return nil, postgres.ReadError(fmt.Sprintf("the filter of event subscription %q of topic %q", name, topic), err)
	}
	return &f, nil
}

// lastEventsTimeout bounds LastEvents. Events have no index by topic, which would cost every publish: PostgreSQL also
// reads the newer events of other topics, a million in 0.3 to 0.5 s (two cores, PostgreSQL 15, bodies of 300 bytes).
const lastEventsTimeout = 10 * time.Second

// LastEvents reads the last events of a topic, up to limit, the newest first, as filters see them, without their trace.
// ErrTooSlow after 10 s: very many events of other topics are newer. *postgres.BusyError.
func (r *Reader) LastEvents(ctx context.Context, topicID int64, limit int) ([]event.Event, error) {
	return r.LastEventsWithin(ctx, topicID, limit, lastEventsTimeout)
}

// LastEventsWithin is LastEvents with another time limit.
func (r *Reader) LastEventsWithin(
	ctx context.Context, topicID int64, limit int, timeout time.Duration,
) (events []event.Event, err error) {
	err = r.search(ctx, timeout, "the topic's last events", func(r *reading) {
		rows, _ := r.tx.Query(r.ctx, sql("last_events"), topicID, limit) // CollectRows returns its error
		events, r.err = pgx.CollectRows(rows, eventOfRow)
	})
	return events, err
}

func eventOfRow(row pgx.CollectableRow) (e event.Event, err error) {
	var at *time.Time
	err = row.Scan(&e.Schema, &e.ID, &e.Type, &e.Subject, &e.Source, &e.DataVersion, &e.Body, &at)
	e.Time = postgres.TimeOrNone(at)
	return e, err
}
