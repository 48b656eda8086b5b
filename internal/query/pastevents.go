package query

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"postrider/internal/access"
	"postrider/internal/catalog"
	"postrider/internal/filter"
	"postrider/internal/postgres"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const (
	// ScanStep is how many dead letters, or events of a day, of all topics, a step scans. It takes some 10 ms; an index
	// would cost every publish.
	ScanStep = 20_000
	// PastBytes is up to how many bytes of bodies one step reads.
	PastBytes = 32 << 20
	// idSlack exceeds the time between an event's id and its publishing: up to two minutes if the database is slow, and a
	// second on a machine that was suspended.
	idSlack = 2 * time.Hour
)

// Past is a position among the events of a time span.
type Past struct {
	TopicID     int64
	From, Until time.Time // of publishing
	Day         time.Time
	After       uuid.UUID
}

// scanned is the result of a scan of the next events of the day.
type scanned struct {
	IDs   [][16]byte // of the topic and the time
	last  *uuid.UUID
	count int // scanned; less than ScanStep: the day has no more
}

// Scan scans the next events of the day, and returns up to most of them.
func (p *Past) Scan(ctx context.Context, tx pgx.Tx, most int) (found scanned, err error) {
	from, until := firstID(p.From.Add(-idSlack)), firstID(p.Until.Add(idSlack))
	if bytes.Compare(p.After[:], from[:]) > 0 {
		from = p.After
	}
	row := tx.QueryRow(ctx, sql("past_events"), p.Day, from, until, ScanStep, p.TopicID, p.From, p.Until, most)
	if err := row.Scan(&found.IDs, &found.last, &found.count); err != nil {
		return found, fmt.Errorf("read past events: %w", err)
	}
	return found, nil
}

// Pass moves behind the events that were read of those found, and reports whether that was the end.
func (p *Past) Pass(found *scanned, read, most int) (end bool) {
	switch {
	case read < len(found.IDs) || len(found.IDs) == most:
		p.After = found.IDs[read-1]
	case found.count == ScanStep:
		p.After = *found.last
	default:
		p.Day, p.After = p.Day.AddDate(0, 0, 1), uuid.Nil
		end = !p.Day.Before(p.Until)
	}
	return end
}

// MatchPast returns which of a day's events a filter matches, with their sizes, and how many events it has read.
// Bodies are read only for advanced filters, up to a limit.
func MatchPast(
	ctx context.Context, tx pgx.Tx, topic string, match *filter.Filter, day time.Time, ids [][16]byte,
) (matched [][16]byte, sizes []int32, read int, err error) {
	var found catalog.StoredEvents
	if match.Advanced() {
		found, err = catalog.ReadStoredBodies(ctx, tx, catalog.AllEvents, []time.Time{day}, ids, PastBytes)
	} else {
		found, err = catalog.ReadStoredEvents(ctx, tx, catalog.AllEvents, []time.Time{day}, ids)
	}
	if err != nil {
		return nil, nil, 0, err
	}
	events := found.Read(ids)
	for i := range events {
		e := &events[i]
		view := catalog.EventView(topic, &e.Event)
		if e.Bytes > 0 && match.Matches(&view) { // 0 bytes: the event was erased, or an operator removed its day
			matched, sizes = append(matched, ids[i]), append(sizes, int32(e.Bytes))
		}
	}
	return matched, sizes, len(events), nil
}

// countStepTime bounds each statement of a count.
const countStepTime = 10 * time.Second

// CountEvents counts the events that RedeliverEvents would deliver now, for a little more than 5 s. *FunctionError,
// *postgres.BusyError.
func (r *Reader) CountEvents(
	ctx context.Context, topic, subscription string, from time.Time, until *time.Time,
) (found Matched, err error) {
	release, err := r.searches.Take(ctx, access.ActorOf(ctx).Name)
	if err != nil {
		return found, err
	}
	defer release()
	began := time.Now()
	past, match, err := r.pastOf(ctx, topic, subscription, from, until)
	if err != nil {
		return found, err
	}
	for end := false; !end; {
		if found.AtLeast = time.Since(began) > countTime; found.AtLeast {
			break
		}
		n, last, err := r.countNext(ctx, topic, past, match)
		if err != nil {
			return found, err
		}
		found.Matched, end = found.Matched+n, last
	}
	return found, nil
}

// countNext counts the matches among the next events of a day, and moves the position.
func (r *Reader) countNext(
	ctx context.Context, topic string, past *Past, match *filter.Filter,
) (n int64, end bool, err error) {
	err = r.db.ReadCanceling(ctx, countStepTime, "past events", func(ctx context.Context, tx pgx.Tx) error {
		next, err := past.Scan(ctx, tx, ScanStep)
		if err != nil {
			return err
		}
		read := 0
		if len(next.IDs) > 0 {
			var matched [][16]byte
			if matched, _, read, err = MatchPast(ctx, tx, topic, match, past.Day, next.IDs); err != nil {
				return err
			}
			n = int64(len(matched))
		}
		end = past.Pass(&next, read, ScanStep)
		return nil
	})
	return n, end, err
}

// pastOf returns where a redelivery of past events would begin, and its filter.
func (r *Reader) pastOf(
	ctx context.Context, topic, subscription string, from time.Time, until *time.Time,
) (*Past, *filter.Filter, error) {
	past, match := &Past{}, &filter.Filter{}
	var text []byte
	row := r.db.QueryRow(ctx, sql("past_begin"), topic, subscription, from, until)
	if err := row.Scan(&past.TopicID, &past.From, &past.Until, &past.Day, &text); err != nil {
		return nil, nil, postgres.CallError("count past events", err)
	}
	if err := json.Unmarshal(text, match); err != nil {
		return nil, nil, fmt.Errorf("read the filter of event subscription %q: %w", subscription, err)
	}
	past.Day = past.Day.UTC()
	return past, match, nil
}

// firstID is the lowest id (version 7) that an event of this time can have.
func firstID(at time.Time) (id uuid.UUID) {
	var milliseconds [8]byte
	binary.BigEndian.PutUint64(milliseconds[:], uint64(max(at.UnixMilli(), 0)))
	copy(id[:6], milliseconds[2:])
	return id
}
