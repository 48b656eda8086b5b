package store

import (
	"context"
	"time"

	"postrider/event"

	"github.com/jackc/pgx/v5"
)

// lastEventsTimeout bounds LastEvents: events are found by their time and not by their topic, so that those of a topic that was
// silent for long may be behind very many others.
const lastEventsTimeout = 10 * time.Second

// LastEvents reads a topic's last events, up to limit, the newest first: as filters see them, without their trace. It fails when it
// takes longer than 10 s.
func (s *Store) LastEvents(ctx context.Context, topicID int64, limit int) ([]event.Event, error) {
	const query = `
SELECT schema, event_id, event_type, subject, source, data_version, body, CASE schema WHEN 'CustomEventSchema' THEN event_time END
  FROM postrider_internal.events WHERE topic_id = $1 ORDER BY id DESC LIMIT $2`
	ctx, cancel := context.WithTimeout(ctx, lastEventsTimeout)
	defer cancel()
	rows, err := s.pool.Query(ctx, query, topicID, limit)
	if err != nil {
		return nil, readError("events", err)
	}
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e event.Event, err error) {
		var at *time.Time
		err = row.Scan(&e.Schema, &e.ID, &e.Type, &e.Subject, &e.Source, &e.DataVersion, &e.Body, &at)
		e.Time = timeOrNone(at)
		return e, err
	})
	if err != nil {
		return nil, readError("events", err)
	}
	return events, nil
}
