package query

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/internal/postgres"
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
	// tailBack is how far each poll goes back before the previous one: an earlier event may be committed later. An event
	// that is committed later than that after its request, or after postrider.publish, is missed.
	tailBack = 3 * time.Second
	// tailBlocks is the same in blocks of the table of attempts: each connection of the nodes fills its own block.
	tailBlocks = 16
	// tailLimit bounds the lines of one poll, each of events and attempts.
	tailLimit = 200
)

// NewTail returns a tail that begins now.
func (r *Reader) NewTail(f TailFilter) *Tail {
	now := r.clock.Now()
	return &Tail{reader: r, filter: f, began: now, since: now, seen: map[string]bool{}}
}

// Mark returns the position of the tail, for ResumeTail.
func (t *Tail) Mark() string {
	return fmt.Sprintf("%d %d %d .%s", t.began.UnixMicro(), t.since.UnixMicro(), t.blocks, t.day)
}

// ResumeTail continues at a mark. Lines that the tail has returned before may be returned again, with the same Place.
// ErrInvalid.
func (r *Reader) ResumeTail(f TailFilter, mark string) (*Tail, error) {
	t := r.NewTail(f)
	var began, since int64
	if _, err := fmt.Sscanf(mark, "%d %d %d %s", &began, &since, &t.blocks, &t.day); err != nil {
		return nil, fmt.Errorf("%w: %q is no mark of a tail", postgres.ErrInvalid, mark)
	}
	t.day = strings.TrimPrefix(t.day, ".")
	t.began, t.since = time.UnixMicro(began), time.UnixMicro(since)
	return t, nil
}

// Next returns the lines since the last call, the oldest first: up to 200 events and 200 attempts, the newest ones.
// ErrTooSlow, ErrUnavailable, *postgres.BusyError.
func (t *Tail) Next(ctx context.Context) (lines []TailLine, err error) {
	var now time.Time
	err = t.reader.search(ctx, postgres.ReadTime, "new events and attempts", func(r *reading) {
		if t.filter.Subscription == "" && !t.filter.Failed {
			from := t.since.Add(-tailBack)
			lines = rows[TailLine](r, "tail_events", pgx.NamedArgs{
				"from": firstID(from), "day": from.UTC().Truncate(24 * time.Hour), "topic": given(t.filter.Topic),
				"limit": tailLimit,
			})
		}
		var attempts []TailLine
		attempts, now = t.attempts(r)
		lines = append(lines, attempts...)
	})
	if err != nil {
		return nil, err
	}
	t.since = now
	lines = t.fresh(lines)
	slices.SortStableFunc(lines, func(a, b TailLine) int { return a.At.Compare(b.At) })
	return lines, nil
}

// attempts reads from a little before the table's end at the last poll. now is the database's time before the snapshot.
func (t *Tail) attempts(r *reading) (lines []TailLine, now time.Time) {
	end := row[struct {
		Now    time.Time
		Name   string
		Blocks *int64
	}](r, "tail_place")
	if end.Blocks == nil {
		return nil, end.Now
	}
	switch t.day {
	case end.Name:
	case "":
		t.blocks = *end.Blocks
	default: // midnight
		t.blocks = 0
	}
	args := pgx.NamedArgs{
		"place": fmt.Sprintf("(%d,1)", max(0, t.blocks-tailBlocks)), "limit": tailLimit,
		"topic": given(t.filter.Topic), "subscription": given(t.filter.Subscription), "failed": t.filter.Failed,
	}
	statement := strings.Replace(sql("tail_attempts"), "{table}", end.Name, 1)
	lines, r.err = postgres.Rows[TailLine](r.ctx, r.tx, statement, args)
	t.day, t.blocks = end.Name, *end.Blocks
	for i := range lines {
		lines[i].Place = end.Name + lines[i].Place
	}
	return lines, end.Now
}

// seenLimit is how many lines are remembered: far more than two polls share.
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
