-- Merges up to @limit rows of rollup_deltas into the tables of counts, and returns their number. Rows that are
-- committed later are merged next time.
WITH taken AS (
    DELETE FROM postrider_internal.rollup_deltas
     WHERE ctid = ANY (ARRAY (SELECT ctid FROM postrider_internal.rollup_deltas LIMIT @limit))
    RETURNING entries
), added AS MATERIALIZED (
    SELECT minute, topic_id, subscription_id, kind, detail, sum(count)::bigint AS count,
           postrider_internal.count_buckets(bucket, count) AS latency_buckets
      FROM taken, unnest(entries) GROUP BY 1, 2, 3, 4, 5
), merged AS (
    INSERT INTO postrider_internal.rollups AS r
           (minute, topic_id, subscription_id, kind, detail, count, latency_buckets)
    SELECT minute, topic_id, subscription_id, kind, detail, count, latency_buckets FROM added
        ON CONFLICT (minute, topic_id, subscription_id, kind, detail)
        DO UPDATE SET count = r.count + excluded.count,
                      latency_buckets = postrider_internal.add_buckets(r.latency_buckets, excluded.latency_buckets)
), summed AS (
    -- Each event subscription by hour, each topic by quarter of an hour, and all by minute and quarter. Counts without
    -- an event subscription (subscription_id 0) are only the topic's.
    INSERT INTO postrider_internal.rollup_sums AS r
           (span, begins, topic_id, subscription_id, kind, detail, count, latency_buckets)
    SELECT CASE WHEN grouping(hour) = 0 THEN 60 WHEN grouping(quarter) = 0 THEN 15 ELSE 1 END,
           coalesce(hour, quarter, minute), coalesce(topic_id, 0), coalesce(subscription_id, 0), kind, detail,
           sum(count)::bigint, postrider_internal.sum_buckets(latency_buckets)
      FROM (SELECT *, date_bin('15 minutes', minute, 'epoch') AS quarter, date_bin('1 hour', minute, 'epoch') AS hour
              FROM added) a
     GROUP BY GROUPING SETS ((hour, topic_id, subscription_id, kind, detail), (quarter, topic_id, kind, detail),
                             (quarter, kind, detail), (minute, kind, detail))
    HAVING grouping(subscription_id) = 1 OR subscription_id > 0
        ON CONFLICT (span, begins, topic_id, subscription_id, kind, detail)
        DO UPDATE SET count = r.count + excluded.count,
                      latency_buckets = postrider_internal.add_buckets(r.latency_buckets, excluded.latency_buckets)
), pending AS (
    INSERT INTO postrider_internal.backlog_counts AS o (subscription_id, deliveries)
    SELECT subscription_id, sum(CASE kind WHEN 'matched' THEN count ELSE -count END) FROM added
     WHERE kind IN ('matched', 'delivered', 'dead_lettered', 'dropped', 'canceled')
     GROUP BY 1 HAVING sum(CASE kind WHEN 'matched' THEN count ELSE -count END) <> 0
        ON CONFLICT (subscription_id) DO UPDATE SET deliveries = o.deliveries + excluded.deliveries
), outcomes AS (
    INSERT INTO postrider_internal.operation_outcomes AS o (operation_id, state, deliveries)
    SELECT operation_id, kind, sum(count) FROM taken, unnest(entries) WHERE operation_id IS NOT NULL GROUP BY 1, 2
        ON CONFLICT (operation_id, state) DO UPDATE SET deliveries = o.deliveries + excluded.deliveries
)
SELECT count(*) FROM taken
