package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// What publishing, recording and canceling count is part of their own statement, so that the counts are exact: whatever was
// committed is counted, and nothing else. They append rows; an upsert would make every flush wait for the same few rows.
const (
	// rolledPublish is a part of the statements that store events: one row for each topic, and one for each event subscription.
	rolledPublish = `
    INSERT INTO postrider_internal.rollup_deltas (minute, topic_id, subscription_id, kind, count)
    SELECT date_trunc('minute', now()), c.topic_id, c.subscription_id, CASE c.subscription_id WHEN 0 THEN 'published' ELSE 'owed' END, c.count
      FROM fresh CROSS JOIN unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS c(topic_id, count, subscription_id)`

	// rolledAttempts is a part of recordStatement: requests by outcome, with how long they took (bounds in microseconds).
	rolledAttempts = `
    INSERT INTO postrider_internal.rollup_deltas (minute, topic_id, subscription_id, kind, detail, count, latency_buckets)
    SELECT date_trunc('minute', now()), coalesce((SELECT s.topic_id FROM postrider_internal.event_subscriptions s WHERE s.id = subscription_id), 0), subscription_id,
           'attempt', outcome, count(*),
           ARRAY [count(*) FILTER (WHERE bucket = 0), count(*) FILTER (WHERE bucket = 1), count(*) FILTER (WHERE bucket = 2), count(*) FILTER (WHERE bucket = 3),
                  count(*) FILTER (WHERE bucket = 4), count(*) FILTER (WHERE bucket = 5), count(*) FILTER (WHERE bucket = 6), count(*) FILTER (WHERE bucket = 7),
                  count(*) FILTER (WHERE bucket = 8), count(*) FILTER (WHERE bucket = 9), count(*) FILTER (WHERE bucket = 10), count(*) FILTER (WHERE bucket = 11),
                  count(*) FILTER (WHERE bucket = 12), count(*) FILTER (WHERE bucket = 13)]
      FROM (SELECT subscription_id, outcome, width_bucket(duration_us, '{5000, 10000, 25000, 50000, 100000, 250000, 500000, 1000000, 2500000, 5000000, 10000000, 30000000, 60000000}'::bigint[]) AS bucket
              FROM result WHERE number > 0) made
     GROUP BY subscription_id, outcome`

	// rolledEnds and rolledEndsFrom are a part of each statement that finishes deliveries; between them stand the state and
	// the reason.
	rolledEnds = `
    INSERT INTO postrider_internal.rollup_deltas (minute, topic_id, subscription_id, kind, detail, count)
    SELECT date_trunc('minute', now()), topic_id, subscription_id, `
	rolledEndsFrom = `, count(*) FROM finished GROUP BY 2, 3, 4, 5`
)

// mergeStep is how many appended rows one statement adds up.
const mergeStep = 50_000

// mergeStatement moves appended rows to where they are kept. What is not committed yet is not seen, and comes next time.
const mergeStatement = `
WITH taken AS (
    DELETE FROM postrider_internal.rollup_deltas WHERE ctid = ANY (ARRAY (SELECT ctid FROM postrider_internal.rollup_deltas LIMIT $1)) RETURNING *
), merged AS (
    INSERT INTO postrider_internal.rollups AS r (minute, topic_id, subscription_id, kind, detail, count, latency_buckets)
    SELECT minute, topic_id, coalesce(subscription_id, 0), kind, detail, sum(count), postrider_internal.sum_buckets(latency_buckets)
      FROM taken GROUP BY 1, 2, 3, 4, 5
        ON CONFLICT (minute, topic_id, subscription_id, kind, detail)
        DO UPDATE SET count = r.count + excluded.count, latency_buckets = postrider_internal.add_buckets(r.latency_buckets, excluded.latency_buckets)
)
SELECT count(*) FROM taken`

// MergeRollups adds up the counts that publishing and recording appended, and says how many rows there were. One node at a
// time: while another is at it, this is nothing.
func (s *Store) MergeRollups(ctx context.Context) (merged int, err error) {
	for n := mergeStep; n == mergeStep; {
		err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			n = 0
			var alone bool
			if err := tx.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock(727274, 4)").Scan(&alone); err != nil || !alone {
				return err
			}
			return tx.QueryRow(ctx, mergeStatement, mergeStep).Scan(&n)
		})
		if err != nil {
			return merged, fmt.Errorf("merge the roll-ups: %w", err)
		}
		merged += n
	}
	return merged, nil
}
