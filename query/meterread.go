package query

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

// countLiving counts the nodes that deliver. One that was killed stays among them until another one finds it dead, and
// for ever where there is none: whoever has written no heartbeat for 15 s does not count.
const countLiving = `(SELECT count(*)::int FROM postrider.nodes
	    WHERE beat_at > clock_timestamp() - interval '15 seconds')`

// meterTotals adds up the counts from a minute on: those of minutes that are over for good apart from those of the last
// two and the current one, which may still be added to (a transaction of ours that counts ends within half a minute).
// So each minute is read for three minutes and never again, and there are at most two rows for each key, however long
// nobody has asked.
var (
	meterTotals = `
WITH span AS (SELECT coalesce(@from::timestamptz, date_trunc('minute', now() - make_interval(secs => @since))) AS first,
    date_trunc('minute', now()) - interval '2 minutes' AS settled)
SELECT c.topic, coalesce(c.subscription, '') AS subscription, c.kind, c.detail, c.minute < span.settled AS over,
       sum(c.count)::bigint AS count,
       CASE WHEN c.kind = 'attempt' THEN ARRAY [` + EachBucket("sum(c.latency_buckets[%[1]d])::bigint") +
		`] END AS latency, greatest(span.first, span.settled) AS settled
  FROM span JOIN postrider.delivery_counts c ON c.minute >= span.first
 GROUP BY 1, 2, 3, 4, 5, span.first, span.settled`

	meterBacklogs = `
SELECT topic, subscription, owed_deliveries AS owed, coalesce(oldest_age_seconds, 0) AS oldest_seconds
FROM postrider.backlogs ORDER BY owed_deliveries DESC, topic, subscription`

	meterHeld = `
SELECT hold AS name, sum(count)::bigint AS count
  FROM (SELECT hold, count(*) FROM (SELECT hold FROM postrider_internal.deliveries WHERE hold IS NOT NULL
      LIMIT @limit) few GROUP BY 1
         UNION ALL
        SELECT hold, sum(members) FROM postrider_internal.batches WHERE hold IS NOT NULL GROUP BY 1) both_of
 GROUP BY 1 ORDER BY 1`

	meterVitals = `
SELECT 0::bigint AS owed_deliveries, 0::float8 AS oldest_owed_seconds,
       ` + countLiving + ` AS nodes,
       (SELECT coalesce(max(postrider_internal.seconds(clock_timestamp() - beat_at)), 0)::float8
           FROM postrider.nodes) AS oldest_beat_seconds,
       (SELECT coalesce(max(to_date(right(c.relname, 8), 'YYYYMMDD')) - (now() AT TIME ZONE 'UTC')::date + 1, 0)
          FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
          WHERE i.inhparent = 'postrider_internal.events'::regclass) AS partition_days,
       (SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables WHERE schemaname = 'postrider_internal'
           AND relname = 'river_job') AS dead_jobs,
       pg_database_size(current_database()) AS database_bytes,
       (SELECT coalesce(max(postrider_internal.seconds(clock_timestamp() - xact_start)), 0)::float8
           FROM pg_stat_activity
         WHERE datname = current_database() AND backend_type = 'client backend'
           AND pid <> pg_backend_pid()) AS oldest_transaction_seconds,
       least(@limit, (SELECT count(*) FROM (SELECT FROM postrider_internal.dead_letters WHERE export_state = 'pending'
           AND export_id IS NULL LIMIT @limit) waiting)
           + (SELECT count(*) FROM (SELECT FROM postrider_internal.dead_letters WHERE export_id IS NOT NULL
               LIMIT @limit) taken))::bigint AS unexported_letters,
       (SELECT coalesce(max(postrider_internal.seconds(clock_timestamp() - created_at)), 0)::float8
           FROM postrider_internal.exports) AS oldest_export_seconds`
)

// metered is a row of meterTotals.
type metered struct {
	Topic, Subscription, Kind, Detail string
	Over                              bool
	Count                             int64
	Latency                           []int64
	Settled                           time.Time
}

func (m *Meter) since() float64 { return time.Since(m.began).Seconds() }

// readTotals is exact: a minute is either among those that are over, added up once, or read again.
func (m *Meter) readTotals(ctx context.Context, tx pgx.Tx) ([]Total, error) {
	var from *time.Time
	if !m.from.IsZero() {
		from = &m.from
	}
	rows, err := postgres.Rows[metered](ctx, tx, meterTotals, pgx.NamedArgs{"from": from, "since": m.since()})
	if err != nil {
		return nil, err
	}
	fresh := map[countKey]*Total{}
	for i := range rows {
		into := fresh
		if rows[i].Over {
			into = m.counts
		}
		m.add(into, &rows[i])
		m.from = rows[i].Settled
	}
	return m.sum(fresh), nil
}

// add counts a row under its names, or the others'.
func (m *Meter) add(into map[countKey]*Total, row *metered) {
	key := countKey{row.Topic, row.Subscription, row.Kind, row.Detail}
	if m.counts[key] == nil {
		if len(m.counts) >= m.limit {
			key = countKey{Others, Others, row.Kind, row.Detail}
		}
		if m.counts[key] == nil {
			m.counts[key] = newTotal(key)
		}
	}
	if into[key] == nil {
		into[key] = newTotal(key)
	}
	into[key].add(row.Count, row.latency())
}

// latency is what was read of attempts; nil of everything else.
func (row *metered) latency() *Latency {
	if len(row.Latency) != latencyBuckets {
		return nil
	}
	return (*Latency)(row.Latency)
}

func newTotal(k countKey) *Total {
	return &Total{Topic: k.topic, Subscription: k.subscription, Kind: k.kind, Detail: k.detail}
}

func (t *Total) add(count int64, latency *Latency) {
	t.Count += count
	if latency != nil {
		t.Latency = t.Latency.Plus(latency)
	}
}

// sum is what there was in all minutes, in a settled order.
func (m *Meter) sum(fresh map[countKey]*Total) []Total {
	all := make([]Total, 0, len(m.counts))
	for key, over := range m.counts {
		total := *newTotal(key)
		for _, part := range []*Total{over, fresh[key]} {
			if part != nil {
				total.add(part.Count, part.Latency)
			}
		}
		all = append(all, total)
	}
	slices.SortFunc(all, func(a, b Total) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Subscription, b.Subscription), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Detail, b.Detail))
	})
	return all
}

// Plus adds up two; either may be nil, and is not changed.
func (l *Latency) Plus(other *Latency) *Latency {
	all := &Latency{}
	for _, part := range []*Latency{l, other} {
		if part == nil {
			continue
		}
		for i, n := range part {
			all[i] += n
		}
	}
	return all
}

// Distribution has bounds in nanoseconds. What the times were exactly is not known: the sum takes each for the middle
// of its bucket.
func (l *Latency) Distribution() postgres.Distribution {
	d := postgres.Distribution{Bounds: make([]int64, len(latencyBounds)), Counts: l[:]}
	for i, bound := range latencyBounds {
		d.Bounds[i] = int64(bound) * int64(time.Millisecond)
	}
	for i, n := range l {
		d.Sum += n * int64(l.within(i, 0.5)*float64(time.Millisecond))
	}
	return d
}
