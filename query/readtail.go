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

// TailLine is an event that was published, or an attempt that was recorded.
type TailLine struct {
	At       time.Time
	Kind     string // published, or attempt
	Topic    string
	EventID  string // "" for an attempt of a batch
	Type     string
	Subject  string
	SystemID *uuid.UUID
	// Of attempts.
	Subscription, Outcome, Verdict string
	DeliveryID, BatchID            *int64
	Number                         int
	Status                         *int
	DurationMs                     float64
	Place                          string // identifies the line
}

// TailFilter selects lines; "" = all.
type TailFilter struct {
	Topic, Subscription string
	// Failed: only failed attempts.
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
	// tailBack is how far each poll goes back before the previous one: what began earlier may be committed later. The id
	// of an event has the time of its request: an event that waits for longer, or is published by SQL in a transaction
	// that stays open, is missed.
	tailBack = 3 * time.Second
	// tailBlocks is the same in blocks of the table of attempts: each of the nodes' connections fills its own block.
	tailBlocks = 16
	// tailLimit bounds the lines of one poll, each of events and attempts.
	tailLimit = 200
)

var (
	tailEvents   = sqlFile("tail_events.sql")
	tailAttempts = sqlFile("tail_attempts.sql")
	tailPlace    = sqlFile("tail_place.sql")
)

// NewTail returns a tail that begins now.
func (r *Reader) NewTail(f TailFilter) *Tail {
	return newTail(r, f, r.clock.Now())
}

func newTail(r *Reader, f TailFilter, began time.Time) *Tail {
	return &Tail{reader: r, filter: f, began: began, since: began, seen: map[string]bool{}}
}

// Mark returns the place of the tail, for ResumeTail.
func (t *Tail) Mark() string {
	return fmt.Sprintf("%d %d %d .%s", t.began.UnixMicro(), t.since.UnixMicro(), t.blocks, t.day)
}

// ResumeTail continues at a mark. Lines that the tail has returned before may be returned again, with the same Place.
// ErrInvalid.
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

// Next returns the lines since the last call, the oldest first: up to 200 events and 200 attempts, the newest ones.
// ErrTooSlow, ErrUnavailable.
func (t *Tail) Next(ctx context.Context) (lines []TailLine, err error) {
	var now time.Time
	err = t.reader.db.Read(ctx, "new events and attempts", func(tx pgx.Tx) error {
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
		"from": firstID(from), "day": from.UTC().Truncate(24 * time.Hour), "topic": given(t.filter.Topic),
		"limit": tailLimit,
	})
}

// attempts reads from a little before the end of the table at the last poll. now is when this poll began, by the
// database's clock, which is before its snapshot.
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
	lines, err := postgres.Rows[TailLine](ctx, tx, strings.Replace(tailAttempts, "{table}", table, 1), args)
	t.blocks = *blocks
	for i := range lines {
		lines[i].Place = table + lines[i].Place
	}
	return lines, err
}

// seenLimit is the number of remembered lines after which older ones are forgotten: far more than two polls share.
const seenLimit = 20_000

// fresh returns the lines that were not returned before and are not older than the tail.
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
