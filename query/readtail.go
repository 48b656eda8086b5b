package query

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

// TailLine is something that happened: an event was published, or an attempt was recorded.
type TailLine struct {
	At       time.Time
	Kind     string // published, or attempt
	Topic    string
	EventID  string // of an attempt for a batch ""
	Type     string
	Subject  string
	SystemID *uuid.UUID
	// Of attempts.
	Subscription, Outcome, Verdict string
	DeliveryID, BatchID            *int64
	Number                         int
	Status                         *int
	DurationMs                     float64
	Place                          string // tells one line from another
}

// TailFilter says what to tell of; "" = everything.
type TailFilter struct {
	Topic, Subscription string
	// Failed: only attempts that were no success.
	Failed bool
}

// Tail follows what is published and attempted. It is for one reader at a time.
type Tail struct {
	reader *Reader
	filter TailFilter
	began  time.Time
	since  time.Time
	day    string
	blocks int64
	seen   map[string]bool
}

const (
	// tailBack is how far each look goes back behind the one before: what began earlier may be committed later. An event
	// has the time at which its request came in its id: one that then waits for longer, or is published by SQL in a
	// transaction that stays open, is not told.
	tailBack = 3 * time.Second
	// tailBlocks is the same in blocks of the attempts' table: each of the nodes' connections fills a block of its own.
	tailBlocks = 16
	// tailLimit bounds what one look tells of. A person reads no faster.
	tailLimit = 200
)

// Attempts are found by their place in the table of their day, which only grows: an index by time would cost every
// attempt.
const (
	tailEvents = `
SELECT e.published_at AS at, 'published' AS kind, t.name AS topic, e.event_id, e.event_type AS type, e.subject,
       e.id AS system_id, '' AS subscription, '' AS outcome, '' AS verdict,
       NULL::bigint AS delivery_id, NULL::bigint AS batch_id, 0 AS number, NULL::int AS status,
       0::float8 AS duration_ms, e.id::text AS place
  FROM postrider_internal.events e JOIN postrider_internal.topics t ON t.id = e.topic_id
 WHERE ` + onceOnly +
		` AND e.id > @from AND e.day >= @day AND (@topic::text IS NULL OR t.name = @topic) ORDER BY e.id DESC LIMIT @limit`

	tailAttempts = `
SELECT a.started_at + a.duration_us * interval '1 microsecond' AS at, 'attempt' AS kind, t.name AS topic,
       coalesce(e.event_id, '') AS event_id, coalesce(e.event_type, '') AS type, coalesce(e.subject, '') AS subject,
       e.id AS system_id,
       s.name AS subscription, a.outcome, a.verdict, a.delivery_id, a.batch_id, a.number, a.status,
       a.duration_us / 1000.0::float8 AS duration_ms, a.place
  FROM (SELECT *, ctid::text AS place FROM postrider_internal.%s WHERE ctid >= @place::text::tid ORDER BY ctid DESC
      LIMIT @limit) a
  JOIN postrider_internal.event_subscriptions s ON s.id = a.subscription_id JOIN postrider_internal.topics t
      ON t.id = s.topic_id
  LEFT JOIN LATERAL (SELECT d.event_uuid, d.event_day FROM postrider_internal.deliveries d WHERE d.id = a.delivery_id
                      UNION ALL SELECT h.event_uuid, h.event_day FROM postrider_internal.delivery_history h
                      WHERE h.id = a.delivery_id LIMIT 1) d ON true
  LEFT JOIN postrider_internal.events e ON e.id = d.event_uuid AND e.day = d.event_day
 WHERE (@topic::text IS NULL OR t.name = @topic) AND (@subscription::text IS NULL OR s.name = @subscription)
   AND (NOT @failed OR a.outcome <> 'Delivered')`
)

// NewTail begins with what happens from now on.
func (r *Reader) NewTail(f TailFilter) *Tail {
	return newTail(r, f, r.clock.Now())
}

func newTail(r *Reader, f TailFilter, began time.Time) *Tail {
	return &Tail{reader: r, filter: f, began: began, since: began, seen: map[string]bool{}}
}

// Mark is where the tail goes on: ResumeTail continues there.
func (t *Tail) Mark() string {
	return fmt.Sprintf("%d %d %d .%s", t.began.UnixMicro(), t.since.UnixMicro(), t.blocks, t.day)
}

// ResumeTail goes on at a mark. It does not know what the tail has returned before: lines may come again, in the same
// Place. ErrInvalid.
func (r *Reader) ResumeTail(f TailFilter, mark string) (*Tail, error) {
	t := newTail(r, f, time.Time{})
	var began, since int64
	var day string
	if _, err := fmt.Sscanf(mark, "%d %d %d %s", &began, &since, &t.blocks, &day); err != nil {
		return nil, fmt.Errorf("%w: %q is no mark of a tail", postgres.ErrInvalid, mark)
	}
	t.day = strings.TrimPrefix(day, ".")
	t.began, t.since = time.UnixMicro(began), time.UnixMicro(since)
	return t, nil
}

// Next tells what has happened since the last call, the oldest first, at most 200 published events and 200 attempts: of
// more only the newest. ErrTooSlow, ErrUnavailable.
func (t *Tail) Next(ctx context.Context) (lines []TailLine, err error) {
	var now time.Time
	err = t.reader.db.Read(ctx, "what happens", func(tx pgx.Tx) error {
		if t.filter.Subscription == "" && !t.filter.Failed {
			if lines, err = t.events(ctx, tx); err != nil {
				return err
			}
		}
		attempts, err := t.attempts(ctx, tx, &now)
		lines = append(lines, attempts...)
		return err
	})
	if err != nil {
		return nil, err
	}
	t.since = now
	lines = t.fresh(lines)
	slices.SortStableFunc(lines, func(a, b TailLine) int { return a.At.Compare(b.At) })
	return lines, nil
}

func (t *Tail) events(ctx context.Context, tx pgx.Tx) ([]TailLine, error) {
	from := t.since.Add(-tailBack)
	return postgres.Rows[TailLine](ctx, tx, tailEvents, pgx.NamedArgs{
		"from": [16]byte(firstID(from)), "day": from.UTC().Truncate(24 * time.Hour), "topic": given(t.filter.Topic),
		"limit": tailLimit,
	})
}

const tailPlace = `
SELECT now(), d.name, pg_relation_size(to_regclass('postrider_internal.' || d.name)) /
    current_setting('block_size')::bigint
  FROM (SELECT 'delivery_attempts_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD') AS name) d`

// attempts reads from a little before the place where the table ended at the last look. It learns from the database
// when this one began, which is before the snapshot was taken.
func (t *Tail) attempts(ctx context.Context, tx pgx.Tx, now *time.Time) ([]TailLine, error) {
	var table string
	var blocks *int64
	if err := tx.QueryRow(ctx, tailPlace).Scan(now, &table, &blocks); err != nil || blocks == nil {
		return nil, err
	}
	switch t.day {
	case table:
	case "":
		t.day, t.blocks = table, *blocks
	default: // midnight
		t.day, t.blocks = table, 0
	}
	args := pgx.NamedArgs{
		"place": fmt.Sprintf("(%d,1)", max(0, t.blocks-tailBlocks)), "limit": tailLimit,
		"topic": given(t.filter.Topic), "subscription": given(t.filter.Subscription), "failed": t.filter.Failed,
	}
	lines, err := postgres.Rows[TailLine](ctx, tx, fmt.Sprintf(tailAttempts, table), args)
	t.blocks = *blocks
	for i := range lines {
		lines[i].Place = table + lines[i].Place
	}
	return lines, err
}

// seenLimit is from when on the memory of what was told is made anew: far more than what two looks have in common.
const seenLimit = 20_000

// fresh leaves what was not told yet and did not happen before the tail began.
func (t *Tail) fresh(lines []TailLine) []TailLine {
	fresh := lines[:0]
	next := t.seen
	if len(t.seen) > seenLimit {
		next = map[string]bool{}
	}
	for _, line := range lines {
		if !t.seen[line.Place] && !line.At.Before(t.began) {
			fresh = append(fresh, line)
		}
		next[line.Place] = true
	}
	t.seen = next
	return fresh
}
