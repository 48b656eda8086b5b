package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Minute is what happened in one minute, or in each step of several.
type Minute struct {
	At                                                                 time.Time
	Published, Owed, Attempts, Failures, Delivered, DeadLetters, Ended int64
}

// Latency is how many attempts took how long: the counts between the bounds that postrider.delivery_counts names.
type Latency [latencyBuckets]int64

// latencyBounds are where the buckets end, in milliseconds; the last has no end.
var latencyBounds = [latencyBuckets - 1]float64{5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000}

// Quantile is the time, in milliseconds, that a share q of the attempts stayed below, read off within its bucket; false where nothing was
// counted.
func (l *Latency) Quantile(q float64) (ms float64, ok bool) {
	var all, below int64
	for _, n := range l {
		all += n
	}
	if all == 0 {
		return 0, false
	}
	wanted := q * float64(all)
	for i, n := range l {
		if float64(below+n) < wanted || n == 0 {
			below += n
			continue
		}
		return l.within(i, (wanted-float64(below))/float64(n)), true
	}
	return latencyBounds[len(latencyBounds)-1], true
}

// within is the place at a share of bucket i.
func (l *Latency) within(i int, share float64) float64 {
	if i == len(latencyBounds) {
		return latencyBounds[i-1]
	}
	from := 0.0
	if i > 0 {
		from = latencyBounds[i-1]
	}
	return from + share*(latencyBounds[i]-from)
}

// Counted is a number by its name: of outcomes, of reasons.
type Counted struct {
	Name  string
	Count int64
}

// Counts is what the roll-ups say of a span of time.
type Counts struct {
	// Minutes are all of the span, those without any event as well, the oldest first; the last is not over yet.
	Minutes  []Minute
	Latency  Latency
	Outcomes []Counted // of attempts, the most frequent first
	Reasons  []Counted // of dead letters
}

// CountsFilter says whose counts; "" = of all.
type CountsFilter struct{ Topic, Subscription string }

// minutesStatement generates every minute of the span: a chart must show where there was nothing.
const (
	minutesStatement = `
WITH counted AS (
    SELECT date_bin(make_interval(mins => @step), c.minute, 'epoch') AS minute, c.kind, c.detail, sum(c.count)::bigint AS count
      FROM postrider.delivery_counts c
     WHERE c.minute >= date_bin(make_interval(mins => @step), now(), 'epoch') - make_interval(mins => @minutes)
       AND (@topic::text IS NULL OR c.topic = @topic) AND (@subscription::text IS NULL OR c.subscription = @subscription)
     GROUP BY 1, 2, 3
)
SELECT m.minute AS at,
       coalesce(sum(count) FILTER (WHERE kind = 'published'), 0)::bigint AS published,
       coalesce(sum(count) FILTER (WHERE kind = 'owed'), 0)::bigint AS owed,
       coalesce(sum(count) FILTER (WHERE kind = 'attempt'), 0)::bigint AS attempts,
       coalesce(sum(count) FILTER (WHERE kind = 'attempt' AND detail <> 'Delivered'), 0)::bigint AS failures,
       coalesce(sum(count) FILTER (WHERE kind = 'delivered'), 0)::bigint AS delivered,
       coalesce(sum(count) FILTER (WHERE kind = 'dead_lettered'), 0)::bigint AS dead_letters,
       coalesce(sum(count) FILTER (WHERE kind IN ('delivered', 'dead_lettered', 'dropped')), 0)::bigint AS ended
  FROM generate_series(date_bin(make_interval(mins => @step), now(), 'epoch') - make_interval(mins => @minutes), now(), make_interval(mins => @step)) AS m(minute)
  LEFT JOIN counted ON counted.minute = m.minute
 GROUP BY 1 ORDER BY 1`

	detailsStatement = `
SELECT c.detail AS name, sum(c.count)::bigint AS count FROM postrider.delivery_counts c
 WHERE c.kind = @kind AND c.minute >= now() - make_interval(mins => @minutes)
   AND (@topic::text IS NULL OR c.topic = @topic) AND (@subscription::text IS NULL OR c.subscription = @subscription)
 GROUP BY 1 ORDER BY 2 DESC, 1`

	latencyStatement = `
SELECT u.place::int, sum(u.n)::bigint FROM postrider.delivery_counts c, unnest(c.latency_buckets) WITH ORDINALITY AS u(n, place)
 WHERE c.kind = 'attempt' AND c.minute >= now() - make_interval(mins => @minutes)
   AND (@topic::text IS NULL OR c.topic = @topic) AND (@subscription::text IS NULL OR c.subscription = @subscription)
 GROUP BY 1`
)

// ReadCounts reads what was counted in the span, which is a whole number of steps, up to now.
func (s *Store) ReadCounts(ctx context.Context, f CountsFilter, span, step time.Duration) (c *Counts, err error) {
	err = s.reading(ctx, "counts", func(tx pgx.Tx) error {
		c, err = readCounts(ctx, tx, f, span, step)
		return err
	})
	return c, err
}

func readCounts(ctx context.Context, tx pgx.Tx, f CountsFilter, span, step time.Duration) (c *Counts, err error) {
	c = &Counts{}
	args := func(kind string) pgx.NamedArgs {
		return pgx.NamedArgs{
			"topic": given(f.Topic), "subscription": given(f.Subscription), "kind": kind,
			"minutes": int(span / time.Minute), "step": int(step / time.Minute),
		}
	}
	if c.Minutes, err = rowsOf[Minute](ctx, tx, minutesStatement, args("")); err != nil {
		return nil, err
	}
	if c.Outcomes, err = rowsOf[Counted](ctx, tx, detailsStatement, args("attempt")); err != nil {
		return nil, err
	}
	if c.Reasons, err = rowsOf[Counted](ctx, tx, detailsStatement, args("dead_lettered")); err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, latencyStatement, args(""))
	if err != nil {
		return nil, err
	}
	var place int
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&place, &n}, func() error { c.Latency[place-1] += n; return nil })
	return c, err
}
