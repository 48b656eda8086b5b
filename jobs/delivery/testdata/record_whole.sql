WITH
input AS (
    SELECT * FROM unnest(
           @results_job_id::bigint[], @results_job_created_at::timestamptz[], @results_delivery_id::bigint[],
           @results_batch_id::bigint[], @results_subscription_id::bigint[], @results_retry_policy::text[],
           @results_number::int[], @results_reruns::int[], @results_due_at::timestamptz[], @results_last_hold::text[],
           @results_bytes::bigint[], @results_started_at::timestamptz[], @results_duration_us::bigint[],
           @results_dns_us::bigint[], @results_connect_us::bigint[], @results_tls_us::bigint[],
           @results_first_byte_us::bigint[], @results_status::int[], @results_outcome::text[], @results_error::text[],
           @results_request_headers::bytea[], @results_headers::bytea[], @results_excerpt::bytea[],
           @results_verdict::text[], @results_state::text[], @results_reason::text[], @results_next_at::timestamptz[],
           @results_not_before::timestamptz[], @results_skipped_offsets::int[], @results_rule::text[],
           @results_step_ms::bigint[], @results_floor_ms::bigint[], @results_jitter_ms::bigint[],
           @results_retry_after_ms::bigint[])
           AS r(job_id, job_created_at, delivery_id, batch_id, subscription_id, retry_policy, number, reruns, due_at,
                last_hold, bytes, started_at, duration_us, dns_us, connect_us, tls_us, first_byte_us, status, outcome,
                error, request_headers, headers, excerpt, verdict, state, reason, next_at, not_before,
                skipped_offsets, rule, step_ms, floor_ms, jitter_ms, retry_after_ms)
),
token AS (
    DELETE FROM postrider_internal.river_job j USING input i
     WHERE j.id = ANY (@results_job_id) AND j.id = i.job_id AND j.created_at = i.job_created_at AND i.verdict <> 'leave'
    RETURNING j.id
),
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
members AS MATERIALIZED (
    SELECT NULL::uuid AS dead_letter_id, NULL::bigint AS next_job, result.* FROM result
), finished AS (
    DELETE FROM postrider_internal.deliveries d USING members m
     WHERE d.batch_id = m.batch_id AND d.batch_id = ANY (ARRAY (SELECT batch_id FROM members))
    RETURNING d.id, d.subscription_id, d.topic_id, d.event_uuid, d.event_day, d.batch_id, d.reruns,
              d.time_to_live_since, d.redelivered_from, d.operation_id, m.state, m.reason, m.error, m.excerpt,
              m.retry_policy, m.dead_letter_id, @time_scale::float8 AS time_scale,
              coalesce(nullif(m.number, 0), d.attempts) AS attempts,
              CASE WHEN m.number > 0 THEN m.status ELSE d.last_status END AS last_status,
              coalesce(m.outcome, d.last_outcome) AS last_outcome,
              coalesce(d.first_attempt_at, m.started_at) AS first_attempt_at,
              coalesce(m.started_at, d.last_attempt_at) AS last_attempt_at
),
batches AS (
    UPDATE postrider_internal.batches b
       SET job_id = CASE r.verdict WHEN 'leave' THEN b.job_id
                                   WHEN 'retry' THEN nextval('postrider_internal.river_job_id_seq') END,
           hold = CASE r.verdict WHEN 'hold' THEN r.reason END,
           held_reruns = CASE r.verdict WHEN 'hold' THEN r.reruns ELSE 0 END,
           attempts = coalesce(nullif(r.number, 0), b.attempts),
           last_hold = CASE WHEN r.number > 0 THEN NULL ELSE b.last_hold END,
           last_status = CASE WHEN r.number > 0 THEN r.status ELSE b.last_status END,
           last_outcome = coalesce(r.outcome, b.last_outcome),
           skipped_offsets = CASE WHEN r.number > 0 THEN r.skipped_offsets ELSE b.skipped_offsets END,
           first_attempt_at = coalesce(b.first_attempt_at, r.started_at),
           last_attempt_at = coalesce(r.started_at, b.last_attempt_at),
           next_attempt_at = CASE WHEN r.state IS NULL THEN coalesce(r.next_at, b.next_attempt_at) END,
           not_before = CASE WHEN r.number > 0 THEN r.not_before ELSE b.not_before END,
           bytes = coalesce(r.bytes, b.bytes),
           members = b.members - (SELECT count(*) FROM members m WHERE r.state IS NULL AND m.batch_id = b.id
                                     AND (m.next_job IS NOT NULL OR m.state IS NOT NULL)),
           state = coalesce(r.state, b.state),
           finished_at = CASE WHEN r.state IS NOT NULL THEN now() END
      FROM result r
     WHERE b.id = r.batch_id AND b.id = ANY (ARRAY (SELECT batch_id FROM result WHERE batch_id IS NOT NULL))
    RETURNING b.id, b.subscription_id, b.job_id, b.attempts, b.next_attempt_at, r.verdict
),
history AS (
    INSERT INTO postrider_internal.delivery_history (id, day, subscription_id, topic_id, event_uuid, event_day,
           attempts, reruns, last_status, batch_id, time_to_live_since, first_attempt_at, last_attempt_at, finished_at,
               state,
           reason, last_outcome, redelivered_from, operation_id, dead_letter_id)
    SELECT id, (now() AT TIME ZONE 'UTC')::date, subscription_id, topic_id, event_uuid, event_day, attempts,
           reruns, last_status, batch_id, time_to_live_since, first_attempt_at, last_attempt_at, now(), state, reason,
           last_outcome, redelivered_from, operation_id, dead_letter_id
      FROM finished
), ends_counted AS (
    INSERT INTO postrider_internal.rollup_deltas (entries)
    SELECT array_agg(postrider_internal.count_entry(topic_id, subscription_id, state, count, detail,
                                                    operation_id => operation_id))
      FROM (SELECT topic_id, subscription_id, state, operation_id, count(*) AS count,
                   CASE WHEN state = 'delivered' AND attempts = 1 THEN 'FirstAttempt'
                        ELSE coalesce(reason, '') END AS detail
              FROM finished GROUP BY topic_id, subscription_id, state, detail, operation_id) c
    HAVING count(*) > 0
)
SELECT coalesce(array_agg(id), '{}') FROM token
