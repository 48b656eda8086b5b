package jobs

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"postrider/jobs/queue"
	"postrider/query"
)

const (
	// rollupSlots, the 8 in the statements that count, is how many parts the counts are merged in. With 10,000 busy event
	// subscriptions ten seconds' counts have 40,000 keys; a statement that takes all of them keeps its snapshot for half a
	// second, and each fetch meanwhile reads past every job that ended since. Steps by age instead are as short, but meet
	// each key in every step: three times the upserts.
	rollupSlots = 8
	// mergeStep is how many appended rows one statement adds up; each has up to some dozens of entries.
	mergeStep = 2000
)

// mergeStatement moves what was appended to where it is kept. What is not committed yet is not seen, and comes next
// time. Requests are added up by themselves: the sums by bucket of all the other entries took a third of the time.
var mergeStatement = `
WITH taken AS (
    DELETE FROM postrider_internal.rollup_deltas
     WHERE ctid = ANY (ARRAY (SELECT ctid FROM postrider_internal.rollup_deltas WHERE slot = $1 LIMIT $2))
     RETURNING entries
), added AS MATERIALIZED (
    SELECT minute, topic_id, subscription_id, kind, detail, sum(count)::bigint AS count,
           NULL::bigint[] AS latency_buckets
      FROM taken, unnest(entries) WHERE bucket IS NULL GROUP BY 1, 2, 3, 4, 5
     UNION ALL
    SELECT minute, topic_id, subscription_id, kind, detail, sum(count)::bigint, ARRAY [` +
	query.EachBucket("coalesce(sum(count) FILTER (WHERE bucket = %[1]d - 1), 0)::bigint") + `]
      FROM taken, unnest(entries) WHERE bucket IS NOT NULL GROUP BY 1, 2, 3, 4, 5
), merged AS (
    INSERT INTO postrider_internal.rollups AS r (minute, topic_id, subscription_id, kind, detail, count,
        latency_buckets)
    SELECT minute, topic_id, subscription_id, kind, detail, count, latency_buckets FROM added
        ON CONFLICT (minute, topic_id, subscription_id, kind, detail)
        DO UPDATE SET count = r.count + excluded.count, latency_buckets = ` + bucketsAdded + `
), summed AS (
    INSERT INTO postrider_internal.rollup_sums AS r (span, begins, topic_id, subscription_id, kind, detail, count,
        latency_buckets)
    ` + sumsOf("added") + `
        ON CONFLICT (span, begins, topic_id, subscription_id, kind, detail)
        DO UPDATE SET count = r.count + excluded.count, latency_buckets = ` + bucketsAdded + `
), owed AS (
    INSERT INTO postrider_internal.owed AS o (subscription_id, deliveries)
    SELECT subscription_id, sum(CASE kind WHEN 'owed' THEN count ELSE -count END) FROM taken, unnest(entries)
     WHERE kind IN ('owed', 'delivered', 'dead_lettered', 'dropped', 'canceled') GROUP BY 1
     HAVING sum(CASE kind WHEN 'owed' THEN count ELSE -count END) <> 0
        ON CONFLICT (subscription_id) DO UPDATE SET deliveries = o.deliveries + excluded.deliveries
), outcomes AS (
    INSERT INTO postrider_internal.operation_outcomes AS o (operation_id, state, deliveries)
    SELECT operation_id, kind, sum(count) FROM taken, unnest(entries) WHERE operation_id IS NOT NULL GROUP BY 1, 2
        ON CONFLICT (operation_id, state) DO UPDATE SET deliveries = o.deliveries + excluded.deliveries
)
SELECT count(*) FROM taken`

var bucketsAdded = `CASE WHEN excluded.latency_buckets IS NOT NULL
                  THEN ARRAY [` +
	query.EachBucket("r.latency_buckets[%[1]d] + excluded.latency_buckets[%[1]d]") + `] END`

// sumsOf adds counts by the minute up to the rows of rollup_sums: of each event subscription by the hour, of each topic
// by the quarter, and of all together by the minute and the quarter. What belongs to no event subscription
// (subscription_id 0) is a topic's alone.
func sumsOf(added string) string {
	return `SELECT CASE WHEN grouping(hour) = 0 THEN 60 WHEN grouping(quarter) = 0 THEN 15 ELSE 1 END,
                  coalesce(hour, quarter, minute), coalesce(topic_id, 0), coalesce(subscription_id, 0), kind, detail,
                  sum(count)::bigint,
           CASE WHEN kind = 'attempt' THEN ARRAY [` + query.EachBucket("sum(latency_buckets[%[1]d])::bigint") + `] END
      FROM (SELECT *, date_bin('15 minutes', minute, 'epoch') AS quarter, date_bin('1 hour', minute, 'epoch') AS hour
          FROM ` + added + `) a
     GROUP BY GROUPING SETS ((hour, topic_id, subscription_id, kind, detail), (quarter, topic_id, kind, detail),` +
		` (quarter, kind, detail), (minute, kind, detail))
    HAVING grouping(subscription_id) = 1 OR subscription_id > 0`
}

// MergeRollups adds up the counts that publishing and recording appended, and says how many rows there were. One node
// at a time: while another is at it, this is nothing.
func (m *Maintenance) MergeRollups(ctx context.Context) (merged int, err error) {
	slots, err := m.rollupsWaiting(ctx)
	if err != nil {
		return 0, fmt.Errorf("look for roll-ups: %w", err)
	}
	for _, slot := range slots {
		for n := mergeStep; n == mergeStep; merged += n {
			if n, err = m.mergeRollups(ctx, slot); err != nil {
				return merged, fmt.Errorf("merge the roll-ups: %w", err)
			}
		}
	}
	return merged, nil
}

// rollupsWaiting are the slots that have anything: to plan the merge takes longer than to look.
func (m *Maintenance) rollupsWaiting(ctx context.Context) ([]int, error) {
	const waiting = `SELECT slot FROM generate_series(0, $1 - 1) AS s(slot)
		WHERE EXISTS (SELECT FROM postrider_internal.rollup_deltas d WHERE d.slot = s.slot)`
	rows, _ := m.db.Query(ctx, waiting, rollupSlots) // its error is the rows'
	return pgx.CollectRows(rows, pgx.RowTo[int])
}

// mergeRollups does one step.
func (m *Maintenance) mergeRollups(ctx context.Context, slot int) (merged int, err error) {
	err = pgx.BeginFunc(ctx, m.db, func(tx pgx.Tx) error {
		var alone bool
		if err := tx.QueryRow(ctx, queue.TryLock, queue.LockRollups, 0).Scan(&alone); err != nil || !alone {
			return err
		}
		return tx.QueryRow(ctx, mergeStatement, slot, mergeStep).Scan(&merged)
	})
	return merged, err
}
