-- +goose Up
-- Deltas live for seconds: vacuum by count, not by share of the table.
ALTER TABLE postrider_internal.rollup_deltas SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

CREATE VIEW postrider.delivery_counts AS
SELECT c.minute, t.name AS topic, s.name AS subscription, c.kind, c.detail, c.count, c.latency_buckets
  FROM (SELECT minute, topic_id, subscription_id, kind, detail, sum(count)::bigint AS count,
               CASE WHEN bool_or(latency_buckets IS NOT NULL) THEN ARRAY [
                    sum(latency_buckets[1])::bigint, sum(latency_buckets[2])::bigint, sum(latency_buckets[3])::bigint, sum(latency_buckets[4])::bigint, sum(latency_buckets[5])::bigint, sum(latency_buckets[6])::bigint, sum(latency_buckets[7])::bigint,
                    sum(latency_buckets[8])::bigint, sum(latency_buckets[9])::bigint, sum(latency_buckets[10])::bigint, sum(latency_buckets[11])::bigint, sum(latency_buckets[12])::bigint, sum(latency_buckets[13])::bigint, sum(latency_buckets[14])::bigint] END AS latency_buckets
          FROM (SELECT * FROM postrider_internal.rollups
                UNION ALL
                SELECT minute, topic_id, subscription_id, kind, detail, sum(count)::bigint, CASE WHEN count(bucket) > 0 THEN ARRAY [
                            coalesce(sum(count) FILTER (WHERE bucket = 0), 0)::bigint, coalesce(sum(count) FILTER (WHERE bucket = 1), 0)::bigint, coalesce(sum(count) FILTER (WHERE bucket = 2), 0)::bigint, coalesce(sum(count) FILTER (WHERE bucket = 3), 0)::bigint,
                            coalesce(sum(count) FILTER (WHERE bucket = 4), 0)::bigint, coalesce(sum(count) FILTER (WHERE bucket = 5), 0)::bigint, coalesce(sum(count) FILTER (WHERE bucket = 6), 0)::bigint, coalesce(sum(count) FILTER (WHERE bucket = 7), 0)::bigint,
                            coalesce(sum(count) FILTER (WHERE bucket = 8), 0)::bigint, coalesce(sum(count) FILTER (WHERE bucket = 9), 0)::bigint, coalesce(sum(count) FILTER (WHERE bucket = 10), 0)::bigint, coalesce(sum(count) FILTER (WHERE bucket = 11), 0)::bigint,
                            coalesce(sum(count) FILTER (WHERE bucket = 12), 0)::bigint, coalesce(sum(count) FILTER (WHERE bucket = 13), 0)::bigint] END
                  FROM postrider_internal.rollup_deltas, unnest(entries) GROUP BY 1, 2, 3, 4, 5) both_of
         GROUP BY minute, topic_id, subscription_id, kind, detail) c
  JOIN postrider_internal.topics t ON t.id = c.topic_id
  LEFT JOIN postrider_internal.event_subscriptions s ON s.id = c.subscription_id;
COMMENT ON VIEW postrider.delivery_counts IS 'What happened in each minute, counted exactly: written in the transactions that did it. Cheap at any number of deliveries; it outlives events and history.';
COMMENT ON COLUMN postrider.delivery_counts.minute IS 'Beginning of the minute.';
COMMENT ON COLUMN postrider.delivery_counts.topic IS 'Topic.';
COMMENT ON COLUMN postrider.delivery_counts.subscription IS 'Event subscription; NULL for published and duplicate, which are counted once however many want the event.';
COMMENT ON COLUMN postrider.delivery_counts.kind IS 'What is counted: published (events), duplicate (events that were published again and are stored once), owed (deliveries begun), attempt (requests made), or how deliveries ended: delivered, dead_lettered, dropped, canceled.';
COMMENT ON COLUMN postrider.delivery_counts.detail IS 'Of an attempt its outcome, of an end its reason; else empty.';
COMMENT ON COLUMN postrider.delivery_counts.count IS 'How many.';
COMMENT ON COLUMN postrider.delivery_counts.latency_buckets IS 'Of attempts: how many took less than 5, 10, 25, 50, 100, 250, 500 ms, 1, 2.5, 5, 10, 30, 60 s, and longer, each without those before it; else NULL.';

-- +goose Down
DROP VIEW postrider.delivery_counts;
ALTER TABLE postrider_internal.rollup_deltas RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay);
