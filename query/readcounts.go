package query

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/policy"
	"postrider/postgres"
)

// Minute is what happened in one minute, or in each step of several.
type Minute struct {
	At                                                                 time.Time
	Published, Owed, Attempts, Failures, Delivered, DeadLetters, Ended int64
	// FirstAttempt are those of Delivered that one attempt was enough for.
	FirstAttempt int64
	// Outcomes are of the attempts, by their names.
	Outcomes map[string]int64
	// Latency is how long the attempts took.
	Latency Latency
}

// latencyBuckets is how many buckets the latency of attempts is counted in.
const latencyBuckets = 14

// EachBucket formats an SQL expression for each bucket, counted from 1.
func EachBucket(expression string) string {
	all := make([]string, latencyBuckets)
	for i := range all {
		all[i] = fmt.Sprintf(expression, i+1)
	}
	return strings.Join(all, ", ")
}

// Latency is how many attempts took how long: the counts between the bounds that postrider.delivery_counts names.
type Latency [latencyBuckets]int64

// latencyBounds are where the buckets end, in milliseconds; the last has no end.
var latencyBounds = [latencyBuckets - 1]float64{5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000}

// Quantile is the time, in milliseconds, that a share q of the attempts stayed below, read off within its bucket; false
// where nothing was counted.
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

// The counts are kept by the minute for each event subscription, and in the sums of rollup_sums. Each is found by its
// key, one look for each beginning: of an event subscription among ten thousand, too. What was not merged yet is added
// from where it waits.
const (
	countsOfMinutes = `SELECT c.minute AS at, c.kind, c.detail, c.count, c.latency_buckets FROM looks k
        CROSS JOIN LATERAL (SELECT * FROM postrider_internal.rollups r WHERE r.minute = k.at AND r.topic_id = k.topic_id
            AND r.subscription_id = k.subscription_id OFFSET 0) c`
	countsOfTopicMinutes = `SELECT c.minute AS at, c.kind, c.detail, c.count, c.latency_buckets FROM looks k
        CROSS JOIN LATERAL (SELECT * FROM postrider_internal.rollups r WHERE r.minute = k.at
            AND r.topic_id = k.topic_id OFFSET 0) c`
	countsOfSums = `SELECT c.begins AS at, c.kind, c.detail, c.count, c.latency_buckets FROM looks k
        CROSS JOIN LATERAL (SELECT * FROM postrider_internal.rollup_sums r WHERE r.span = @grain AND r.begins = k.at
            AND r.topic_id = k.topic_id AND r.subscription_id = k.subscription_id OFFSET 0) c`
)

// countsScope names whose counts: names that were given again have several ids.
const countsScope = `
SELECT date_bin(make_interval(mins => @step), now(), 'epoch') AS last,
       coalesce(CASE WHEN @subscription::text IS NOT NULL THEN
           (SELECT array_agg(s.topic_id) FROM postrider_internal.event_subscriptions s JOIN postrider_internal.topics t
               ON t.id = s.topic_id WHERE s.name = @subscription AND (@topic::text IS NULL OR t.name = @topic))
            WHEN @topic::text IS NOT NULL THEN (SELECT array_agg(id) FROM postrider_internal.topics WHERE name = @topic)
            ELSE '{0}' END, '{}')::bigint[] AS topics,
       coalesce(CASE WHEN @subscription::text IS NOT NULL THEN
           (SELECT array_agg(s.id) FROM postrider_internal.event_subscriptions s JOIN postrider_internal.topics t
               ON t.id = s.topic_id WHERE s.name = @subscription AND (@topic::text IS NULL OR t.name = @topic))
            END, '{}')::bigint[] AS subscriptions`

// countsStatement is completed with where the counts are kept.
var countsStatement = `
WITH looks AS (
    SELECT g.at, o.topic_id, coalesce(o.subscription_id, 0) AS subscription_id
      FROM generate_series(@from::timestamptz, now(), make_interval(mins => @grain)) AS g(at)
      CROSS JOIN unnest(@topics::bigint[], @subscriptions::bigint[]) AS o(topic_id, subscription_id)
), counted AS (
    %s
     UNION ALL
    SELECT e.minute, e.kind, e.detail, sum(e.count)::bigint, ARRAY [` +
	EachBucket("coalesce(sum(e.count) FILTER (WHERE e.bucket = %[1]d - 1), 0)::bigint") + `]
      FROM postrider_internal.rollup_deltas d, unnest(d.entries) AS e
     WHERE e.minute >= @from AND (e.topic_id = ANY (@topics) OR @topics = '{0}')
       AND (e.subscription_id = ANY (@subscriptions) OR @subscriptions = '{}') GROUP BY 1, 2, 3
)
SELECT date_bin(make_interval(mins => @step), at, 'epoch') AS at, kind, detail, sum(count)::bigint AS count,
       CASE WHEN kind = 'attempt' THEN ARRAY [` + EachBucket("coalesce(sum(latency_buckets[%[1]d]), 0)::bigint") +
	`] END AS latency_buckets
  FROM counted GROUP BY 1, 2, 3 ORDER BY 1`

// counted is one of its rows.
type counted struct {
	At             time.Time
	Kind, Detail   string
	Count          int64
	LatencyBuckets []int64
}

// ReadCounts reads what was counted in the span, which is a whole number of steps, up to now. A step is some minutes;
// from an hour on whole hours.
func (r *Reader) ReadCounts(ctx context.Context, f CountsFilter, span, step time.Duration) (c *Counts, err error) {
	err = r.db.Read(ctx, "counts", func(tx pgx.Tx) error {
		c, err = readCounts(ctx, tx, f, span, step)
		return err
	})
	return c, err
}

// source is where the counts of a filter are kept in steps no longer than that, and how long its own are, in minutes.
func (f *CountsFilter) source(step time.Duration) (statement string, grain int) {
	switch {
	case f.Subscription != "" && step < time.Hour:
		return countsOfMinutes, 1
	case f.Subscription != "":
		return countsOfSums, 60
	case step < 15*time.Minute && f.Topic != "":
		return countsOfTopicMinutes, 1
	case step < 15*time.Minute:
		return countsOfSums, 1
	default:
		return countsOfSums, 15
	}
}

func readCounts(ctx context.Context, tx pgx.Tx, f CountsFilter, span, step time.Duration) (*Counts, error) {
	args := pgx.NamedArgs{"topic": given(f.Topic), "subscription": given(f.Subscription), "step": int(step / time.Minute)}
	whose, err := postgres.Row[struct {
		Last                  time.Time
		Topics, Subscriptions []int64
	}](ctx, tx, countsScope, args)
	if err != nil {
		return nil, err
	}
	source, grain := f.source(step)
	from := whose.Last.Add(-span)
	args["from"], args["grain"], args["topics"], args["subscriptions"] = from, grain, whose.Topics, whose.Subscriptions
	rows, err := postgres.Rows[counted](ctx, tx, fmt.Sprintf(countsStatement, source), args)
	if err != nil {
		return nil, err
	}
	return countsOf(rows, from, step, int(span/step)+1), nil
}

// countsOf puts the rows in their steps: a chart must show where there was nothing.
func countsOf(rows []counted, from time.Time, step time.Duration, steps int) *Counts {
	c := &Counts{Minutes: make([]Minute, steps)}
	for i := range c.Minutes {
		c.Minutes[i].At, c.Minutes[i].Outcomes = from.Add(time.Duration(i)*step), map[string]int64{}
	}
	outcomes, reasons := map[string]int64{}, map[string]int64{}
	for i := range rows {
		r := &rows[i]
		c.Minutes[min(max(0, int(r.At.Sub(from)/step)), steps-1)].add(r)
		switch r.Kind {
		case "attempt":
			outcomes[r.Detail] += r.Count
			c.Latency.add(r.LatencyBuckets)
		case "dead_lettered":
			reasons[r.Detail] += r.Count
		}
	}
	c.Outcomes, c.Reasons = byCount(outcomes), byCount(reasons)
	return c
}

func (m *Minute) add(r *counted) {
	switch r.Kind {
	case "published":
		m.Published += r.Count
	case "owed":
		m.Owed += r.Count
	case "attempt":
		m.Attempts += r.Count
		m.Outcomes[r.Detail] += r.Count
		m.Latency.add(r.LatencyBuckets)
		if r.Detail != string(policy.OutcomeDelivered) {
			m.Failures += r.Count
		}
	case "delivered":
		m.Delivered, m.Ended = m.Delivered+r.Count, m.Ended+r.Count
		if r.Detail == "FirstAttempt" {
			m.FirstAttempt += r.Count
		}
	case "dead_lettered":
		m.DeadLetters, m.Ended = m.DeadLetters+r.Count, m.Ended+r.Count
	case "dropped":
		m.Ended += r.Count
	}
}

func (l *Latency) add(buckets []int64) {
	for i, n := range buckets {
		l[i] += n
	}
}

// byCount is the most frequent first.
func byCount(counts map[string]int64) []Counted {
	list := make([]Counted, 0, len(counts))
	for name, n := range counts {
		list = append(list, Counted{name, n})
	}
	slices.SortFunc(list,
		func(a, b Counted) int { return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Name, b.Name)) })
	return list
}
