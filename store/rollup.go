package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// What publishing, recording and canceling count is part of their own statement, so that the counts are exact: whatever was
// committed is counted, and nothing else. They append a row each; an upsert would make every flush wait for the same few rows.
const (
	rolled = `
    INSERT INTO postrider_internal.rollup_deltas (entries)
    SELECT array_agg(ROW (date_trunc('minute', now()), topic_id, subscription_id, kind, detail, bucket, count)::postrider_internal.rollup_entry) FROM (`
	rolledAs = `) c(topic_id, subscription_id, kind, detail, bucket, count) HAVING count(*) > 0`

	// rolledPublish is a part of the statements that store events: an entry for each topic, and one for each event subscription.
	rolledPublish = rolled + `
        SELECT topic_id, subscription_id, CASE subscription_id WHEN 0 THEN 'published' ELSE 'owed' END, '', NULL::int, count
          FROM fresh CROSS JOIN unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS c(topic_id, count, subscription_id)` + rolledAs

	// rolledOwed is a part of the statement that fans routes out.
	rolledOwed = rolled + `SELECT topic_id, subscription_id, 'owed', '', NULL::int, count(*) FROM owed GROUP BY 1, 2` + rolledAs

	// rolledAttempts is a part of the statements that record: requests by outcome and by how long they took (bounds in microseconds).
	rolledAttempts = rolled + `
        SELECT coalesce((SELECT s.topic_id FROM postrider_internal.event_subscriptions s WHERE s.id = subscription_id), 0), subscription_id, 'attempt', outcome,
               width_bucket(duration_us, '{5000, 10000, 25000, 50000, 100000, 250000, 500000, 1000000, 2500000, 5000000, 10000000, 30000000, 60000000}'::bigint[]), count(*)
          FROM result WHERE number > 0 GROUP BY 2, 4, 5` + rolledAs

	// rolledEnds and rolledEndsFrom are a part of each statement that finishes deliveries; between them stand the state and
	// the reason.
	rolledEnds     = rolled + `SELECT topic_id, subscription_id, `
	rolledEndsFrom = `, NULL::int, count(*) FROM finished GROUP BY 1, 2, 3, 4` + rolledAs
)

// mergeStep is how many appended rows one statement adds up; each has up to some hundred entries.
const mergeStep = 500

// mergeStatement moves what was appended to where it is kept. What is not committed yet is not seen, and comes next time.
const mergeStatement = `
WITH taken AS (
    DELETE FROM postrider_internal.rollup_deltas WHERE ctid = ANY (ARRAY (SELECT ctid FROM postrider_internal.rollup_deltas LIMIT $1)) RETURNING entries
), merged AS (
    INSERT INTO postrider_internal.rollups AS r (minute, topic_id, subscription_id, kind, detail, count, latency_buckets)
    SELECT minute, topic_id, coalesce(subscription_id, 0), kind, detail, sum(count), CASE WHEN count(bucket) > 0 THEN ARRAY [
               coalesce(sum(count) FILTER (WHERE bucket = 0), 0)::bigint, coalesce(sum(count) FILTER (WHERE bucket = 1), 0)::bigint, coalesce(sum(count) FILTER (WHERE bucket = 2), 0)::bigint, coalesce(sum(count) FILTER (WHERE bucket = 3), 0)::bigint,
               coalesce(sum(count) FILTER (WHERE bucket = 4), 0)::bigint, coalesce(sum(count) FILTER (WHERE bucket = 5), 0)::bigint, coalesce(sum(count) FILTER (WHERE bucket = 6), 0)::bigint, coalesce(sum(count) FILTER (WHERE bucket = 7), 0)::bigint,
               coalesce(sum(count) FILTER (WHERE bucket = 8), 0)::bigint, coalesce(sum(count) FILTER (WHERE bucket = 9), 0)::bigint, coalesce(sum(count) FILTER (WHERE bucket = 10), 0)::bigint, coalesce(sum(count) FILTER (WHERE bucket = 11), 0)::bigint,
               coalesce(sum(count) FILTER (WHERE bucket = 12), 0)::bigint, coalesce(sum(count) FILTER (WHERE bucket = 13), 0)::bigint] END
      FROM taken, unnest(entries) GROUP BY 1, 2, 3, 4, 5
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
