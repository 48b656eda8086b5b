package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"postrider/catalog"
	"postrider/event"
	"postrider/policy/filter"
	"postrider/postgres"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// SubscriptionFilter is an event subscription's filter, with what it takes to show it events.
type SubscriptionFilter struct {
	// Topic has no access keys.
	Topic  catalog.Topic
	Filter filter.Filter
}

// ReadFilter reads an event subscription's filter, without a store: for a program that has no encryption key.
// ErrNotFound.
func ReadFilter(ctx context.Context, pool *pgxpool.Pool, topic, name string) (*SubscriptionFilter, error) {
	const query = `
SELECT t.id, t.name, t.kind, t.input_schema, t.input_schema_mapping, s.filter
  FROM postrider_internal.topics t JOIN postrider_internal.event_subscriptions s ON s.topic_id = t.id
      AND s.deleted_at IS NULL
 WHERE t.name = $1 AND t.deleted_at IS NULL AND s.name = $2`
	var (
		f      SubscriptionFilter
		filter []byte
	)
	err := pool.QueryRow(ctx, query, topic, name).
		Scan(&f.Topic.ID, &f.Topic.Name, &f.Topic.Kind, &f.Topic.InputSchema, &f.Topic.InputSchemaMapping, &filter)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("event subscription %q of topic %q: %w", name, topic, postgres.ErrNotFound)
	}
	if err == nil {
		err = json.Unmarshal(filter, &f.Filter)
	}
	if err != nil {
		return nil, postgres.ReadFailed(fmt.Sprintf("the filter of event subscription %q of topic %q", name, topic), err)
	}
	return &f, nil
}

// lastEventsTimeout bounds LastEvents. Events are found by their time and not by their topic, for each index costs
// every publish: PostgreSQL reads what is newer than the topic's. It passed by a million events in 0.3 to 0.5 s (two
// cores, PostgreSQL 15, bodies of 300 bytes).
const lastEventsTimeout = 10 * time.Second

// LastEvents reads a topic's last events, up to limit, the newest first: as filters see them, without their trace.
// ErrTooSlow after 10 s: the topic was silent while very many others were published to.
func LastEvents(ctx context.Context, pool *pgxpool.Pool, topicID int64, limit int) ([]event.Event, error) {
	return LastEventsWithin(ctx, pool, topicID, limit, lastEventsTimeout)
}

// LastEventsWithin is LastEvents with another time limit.
func LastEventsWithin(
	ctx context.Context, pool *pgxpool.Pool, topicID int64, limit int, timeout time.Duration,
) (events []event.Event, err error) {
	const query = `
SELECT schema, event_id, event_type, subject, source, data_version, body, CASE schema WHEN 'CustomEventSchema'
    THEN event_time END
  FROM postrider_internal.events WHERE topic_id = $1 AND erased_at IS NULL ORDER BY id DESC LIMIT $2`
	err = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := postgres.EndAfter(ctx, tx, timeout); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, query, topicID, limit)
		if err != nil {
			return err
		}
		events, err = pgx.CollectRows(rows, eventOfRow)
		return err
	})
	switch {
	case postgres.SQLState(err) == postgres.QueryCanceled:
		return nil, fmt.Errorf("read the topic's last events within %s: %w: %w", timeout, postgres.ErrTooSlow, err)
	case err != nil:
		return nil, postgres.ReadFailed("events", err)
	}
	return events, nil
}

func eventOfRow(row pgx.CollectableRow) (e event.Event, err error) {
	var at *time.Time
	err = row.Scan(&e.Schema, &e.ID, &e.Type, &e.Subject, &e.Source, &e.DataVersion, &e.Body, &at)
	e.Time = postgres.TimeOrNone(at)
	return e, err
}
