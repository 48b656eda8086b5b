package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const (
	// scanStep is how many of a day's events a step reads at most, of all topics: an index by topic would cost every publish.
	scanStep = 20_000
	// idSlack is how far an event's id may be from its time of publishing, amply: that is the database's, and the id comes from the clock of
	// the process, which may be an hour off, up to half a minute before the event is stored.
	idSlack = 2 * time.Hour
)

// pastStatement reads the next events of one day in the order of their ids, and says of which of them the topic and the time of publishing are
// those asked for. Events that a redelivery has stored again are another day's.
const pastStatement = `
WITH scanned AS MATERIALIZED (
    SELECT id, topic_id, published_at FROM postrider_internal.events WHERE day = $1 AND id > $2 AND id < $3 ORDER BY id LIMIT $4
), met AS (
    SELECT id FROM scanned WHERE topic_id = $5 AND published_at >= $6 AND published_at < $7 AND (published_at AT TIME ZONE 'UTC')::date = $1 ORDER BY id LIMIT $8
)
SELECT coalesce((SELECT array_agg(id ORDER BY id) FROM met), '{}'), (SELECT id FROM scanned ORDER BY id DESC LIMIT 1), (SELECT count(*) FROM scanned)`

// stepEvents redelivers the next past events that the event subscription's filter wants, of one day. The last day's end is the operation's.
func (s *Store) stepEvents(ctx context.Context, tx pgx.Tx, o *operationRow) (step stepped, err error) {
	sub, gone, err := s.targetOf(ctx, tx, *o.TargetID)
	if err != nil || gone != "" {
		step.failure = &gone
		return step, err
	}
	day := o.ReachedAt.UTC()
	from, until := later(o.ReachedID, firstID(o.PublishedFrom.Add(-idSlack))), firstID(o.PublishedUntil.Add(idSlack))
	var ids [][16]byte
	var last *uuid.UUID
	var scanned int
	row := tx.QueryRow(ctx, pastStatement, day, from, until, scanStep, sub.TopicID, *o.PublishedFrom, *o.PublishedUntil, o.most())
	if err := row.Scan(&ids, &last, &scanned); err != nil {
		return step, fmt.Errorf("look for past events: %w", err)
	}
	read := 0
	if len(ids) > 0 {
		if step, read, err = s.redeliverPast(ctx, tx, o, sub, day, ids); err != nil {
			return step, err
		}
	}
	step.Taken = int(step.Done) // the rate is that of deliveries
	switch {
	case read < len(ids) || len(ids) == o.most():
		step.ReachedAt, step.ReachedID = &day, new(uuid.UUID(ids[read-1]))
	case scanned == scanStep:
		step.ReachedAt, step.ReachedID = &day, last
	default:
		next := day.AddDate(0, 0, 1)
		step.ReachedAt, step.ReachedID, step.last = &next, &uuid.Nil, !next.Before(*o.PublishedUntil)
	}
	return step, nil
}

// targetOf finds an event subscription that is still there, as it is configured now; else gone says in words why it is not.
func (s *Store) targetOf(ctx context.Context, tx pgx.Tx, id int64) (sub *Subscription, gone string, err error) {
	list, err := s.querySubscriptions(ctx, tx, "WHERE s.id = $1", id)
	switch {
	case err != nil:
		return nil, "", err
	case len(list) == 0 || list[0].DeletedAt != nil:
		return nil, "the event subscription was deleted", nil
	case list[0].expired(s.Now()):
		return nil, "the event subscription has expired", nil
	}
	const lock = "SELECT FROM postrider_internal.event_subscriptions WHERE id = $1 AND deleted_at IS NULL FOR SHARE"
	tag, err := tx.Exec(ctx, lock, id) // a deletion must see these deliveries
	if err != nil {
		return nil, "", fmt.Errorf("lock an event subscription: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return nil, "the event subscription was deleted", nil
	}
	return list[0], "", nil
}

// redeliverPast makes deliveries of those events that are wanted, and says how many it has read: bodies are read for advanced filters alone, and a
// step has room for so many of them.
func (s *Store) redeliverPast(ctx context.Context, tx pgx.Tx, o *operationRow, sub *Subscription, day time.Time, ids [][16]byte) (step stepped, read int, err error) {
	r := &routing{TopicID: sub.TopicID, EventDay: day, EventUUIDs: ids}
	if sub.Filter.Advanced() {
		err = readRoutedBodies(ctx, tx, []*routing{r}, operationBytes)
	} else {
		err = readRoutedEvents(ctx, tx, []*routing{r})
	}
	if err != nil {
		return step, 0, err
	}
	var wanted [][16]byte
	var sizes []int32
	for i := range r.events {
		e := &r.events[i]
		view := EventView(sub.Topic, &e.Event)
		if e.bytes > 0 && sub.Filter.Matches(&view) { // without a byte it was erased, or somebody removed its day
			wanted, sizes = append(wanted, ids[i]), append(sizes, int32(e.bytes))
		}
	}
	const call = "SELECT postrider_internal.redeliver_past($1, $2, $3, $4, $5)"
	if len(wanted) > 0 {
		if err := tx.QueryRow(ctx, call, wanted, sizes, day, sub.ID, o.ID).Scan(&step.Done); err != nil {
			return step, 0, fmt.Errorf("redeliver past events: %w", err)
		}
	}
	step.Skipped = int64(len(r.events)) - step.Done
	return step, len(r.events), nil
}

func later(a, b uuid.UUID) uuid.UUID {
	if bytes.Compare(a[:], b[:]) > 0 {
		return a
	}
	return b
}

// firstID is the lowest id (version 7) that an event of this time can have.
func firstID(at time.Time) (id uuid.UUID) {
	var milliseconds [8]byte
	binary.BigEndian.PutUint64(milliseconds[:], uint64(max(at.UnixMilli(), 0)))
	copy(id[:6], milliseconds[2:])
	return id
}
