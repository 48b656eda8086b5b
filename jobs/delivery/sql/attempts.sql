-- Stores and counts the attempts of the results whose tokens exist. It is a part of record.sql and record_ends.sql.
result AS MATERIALIZED (
    SELECT i.* FROM input i JOIN token ON token.id = i.job_id
), attempts AS (
    INSERT INTO postrider_internal.delivery_attempts (day, delivery_id, batch_id, subscription_id, job_id, number,
           reruns, due_at, started_at, duration_us, dns_us, connect_us, tls_us, first_byte_us, status, outcome, error,
           verdict, next_attempt_at, rule, step_ms, floor_ms, jitter_ms, retry_after_ms, hold, skipped_offsets, node,
           request_headers, response_headers, response_excerpt)
    SELECT (now() AT TIME ZONE 'UTC')::date, delivery_id, batch_id, subscription_id, job_id, number,
           reruns, due_at, started_at, duration_us, dns_us, connect_us, tls_us, first_byte_us, status, outcome, error,
           verdict, next_at, rule, step_ms, floor_ms, jitter_ms, retry_after_ms, last_hold, skipped_offsets, @node,
           request_headers, headers, excerpt
      FROM result WHERE number > 0
), attempts_counted AS (
    INSERT INTO postrider_internal.rollup_deltas (slot, entries)
    SELECT (topic_id + subscription_id) % 8,
           array_agg(ROW (date_trunc('minute', now()), topic_id, subscription_id, 'attempt', outcome, bucket, count,
                          NULL)::postrider_internal.rollup_entry)
      FROM (SELECT coalesce((SELECT s.topic_id FROM postrider_internal.event_subscriptions s
                              WHERE s.id = subscription_id), 0) AS topic_id,
                   subscription_id, outcome, count(*) AS count,
                   width_bucket(duration_us, '{5000, 10000, 25000, 50000, 100000, 250000, 500000, 1000000, 2500000,
                                               5000000, 10000000, 30000000, 60000000}'::bigint[]) AS bucket
              FROM result WHERE number > 0 GROUP BY subscription_id, outcome, bucket) c
     GROUP BY 1
),
