-- Stores and counts the attempts of the results whose tokens exist. It is a part of record.sql, record_ends.sql and
-- record_whole.sql.
result AS MATERIALIZED (
    SELECT i.* FROM input i JOIN token ON token.id = i.job_id
), attempts AS (
    INSERT INTO postrider_internal.delivery_attempts (day, delivery_id, batch_id, subscription_id, job_id, number,
           reruns, due_at, started_at, duration_us, dns_us, connect_us, tls_us, first_byte_us, status, outcome, error,
           verdict, next_attempt_at, rule, step_ms, floor_ms, jitter_ms, retry_after_ms, hold, skipped_offsets, node,
           request_headers, response_headers, response_excerpt)
    SELECT (now() AT TIME ZONE 'UTC')::date, delivery_id, batch_id, subscription_id, job_id, number,
           reruns, due_at, started_at, duration_us, dns_us, connect_us, tls_us, first_byte_us, status, outcome, error,
           verdict, next_at, rule, step_ms, floor_ms, jitter_ms, retry_after_ms, last_hold, skipped_offsets,
           @node::text, request_headers, headers, excerpt
      FROM result WHERE number > 0
), attempts_counted AS (
    INSERT INTO postrider_internal.rollup_deltas (entries)
    SELECT array_agg(postrider_internal.count_entry(topic_id, subscription_id, 'attempt', count, outcome, bucket))
      FROM (SELECT coalesce((SELECT s.topic_id FROM postrider_internal.event_subscriptions s
                              WHERE s.id = subscription_id), 0) AS topic_id,
                   subscription_id, outcome, count(*) AS count,
                   postrider_internal.latency_bucket(duration_us) AS bucket
              FROM result WHERE number > 0 GROUP BY subscription_id, outcome, bucket) c
    HAVING count(*) > 0
),
