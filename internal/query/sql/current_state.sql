-- Reads the state of all deliveries at this moment. A backlog of any size is known without counting it; what is on hold
-- is counted up to @held, and the lag is that of the newest @sample finished deliveries.
WITH backlog AS (
    SELECT coalesce(sum(n), 0)::bigint AS pending
      FROM (SELECT deliveries AS n FROM postrider_internal.backlog_counts
             UNION ALL
            SELECT CASE kind WHEN 'matched' THEN count ELSE -count END
              FROM postrider_internal.unmerged_counts
             WHERE kind IN ('matched', 'delivered', 'dead_lettered', 'dropped', 'canceled')) changes
), held AS (
    SELECT least(@held, (SELECT count(*) FROM (SELECT FROM postrider_internal.deliveries
                                                WHERE hold IS NOT NULL LIMIT @held) single)
           + (SELECT count(*) FROM (SELECT FROM postrider_internal.held_available LIMIT @held) available)
           + (SELECT coalesce(sum(members), 0) FROM (SELECT members FROM postrider_internal.batches
                                                      WHERE hold IS NOT NULL LIMIT @held) batched))::bigint AS held
), oldest AS (
    SELECT id, time_to_live_since FROM postrider_internal.deliveries ORDER BY id LIMIT 1
), finished AS (
    SELECT state, postrider_internal.seconds(finished_at - time_to_live_since) AS lag
      FROM postrider_internal.delivery_history
     ORDER BY id DESC
     LIMIT @sample
), lag AS (
    SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY lag) AS p50,
           percentile_cont(0.95) WITHIN GROUP (ORDER BY lag) AS p95
      FROM finished
     WHERE state = 'delivered'
)
SELECT greatest(0, backlog.pending) AS pending, held.held, oldest.time_to_live_since AS oldest_pending_since,
       oldest.id AS oldest_id,
       (SELECT coalesce(sum(consistency_repairs), 0)::bigint FROM postrider.nodes) AS consistency_repairs,
       -- living_nodes.sql
       lag.p50 AS lag_p50, lag.p95 AS lag_p95
  FROM backlog
 CROSS JOIN held
 CROSS JOIN lag
  LEFT JOIN oldest ON true
