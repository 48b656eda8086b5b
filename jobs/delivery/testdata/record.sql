--
--
--
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
gone AS (
    DELETE FROM postrider_internal.river_job j USING input i
     WHERE j.id = ANY (@results_job_id) AND j.id = i.job_id AND j.created_at = i.job_created_at AND i.verdict <> 'leave'
    RETURNING j.id
), kept AS MATERIALIZED (
    SELECT j.id FROM postrider_internal.river_job j JOIN input i ON j.id = i.job_id AND j.created_at = i.job_created_at
     WHERE j.id = ANY (ARRAY (SELECT job_id FROM input WHERE verdict = 'leave')) FOR UPDATE OF j
), token AS (
    SELECT id FROM gone UNION ALL SELECT id FROM kept
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
    SELECT d.id, d.attempts_made, r.batch_id, r.subscription_id, r.retry_policy, r.number, r.reruns, r.status,
           r.outcome, r.error, r.excerpt, r.started_at, r.skipped_offsets, r.state IS NOT NULL AS ends,
           coalesce(f.next_at, r.next_at) AS next_at, f.dead_letter_id,
           CASE WHEN f.delivery_id IS NULL THEN r.reason ELSE f.reason END AS reason,
           CASE WHEN f.delivery_id IS NULL THEN r.state ELSE f.state END AS state,
           CASE WHEN f.delivery_id IS NOT NULL THEN f.not_before
                WHEN r.batch_id IS NULL THEN r.not_before END AS not_before,
           CASE WHEN coalesce(f.verdict, CASE WHEN r.batch_id IS NULL THEN r.verdict END) = 'retry'
                THEN nextval('postrider_internal.river_job_id_seq') END AS next_job,
           CASE WHEN r.batch_id IS NULL AND r.verdict = 'hold' THEN r.reason END AS hold
      FROM result r
     CROSS JOIN LATERAL (
           SELECT r.delivery_id AS id, r.number AS attempts_made WHERE r.batch_id IS NULL
            UNION ALL
           SELECT d.id, coalesce(nullif(r.number, 0), d.attempts)
             FROM postrider_internal.deliveries d WHERE d.batch_id = r.batch_id OFFSET 0) d
      LEFT JOIN unnest(@fates_job_id::bigint[], @fates_delivery_id::bigint[], @fates_verdict::text[],
                       @fates_state::text[], @fates_next_at::timestamptz[], @fates_not_before::timestamptz[],
                       @fates_reason::text[], @fates_dead_letter_id::uuid[])
                AS f(job_id, delivery_id, verdict, state, next_at, not_before, reason, dead_letter_id)
                ON f.job_id = r.job_id AND f.delivery_id = d.id
     WHERE f.delivery_id IS NOT NULL OR r.batch_id IS NULL OR r.verdict NOT IN ('hold', 'leave')
), stayed AS (
    UPDATE postrider_internal.deliveries d
       SET attempts = coalesce(nullif(m.number, 0), d.attempts),
           skipped_offsets = CASE WHEN m.number > 0 THEN m.skipped_offsets ELSE d.skipped_offsets END,
           last_status = CASE WHEN m.number > 0 THEN m.status ELSE d.last_status END,
           last_outcome = coalesce(m.outcome, d.last_outcome),
           first_attempt_at = coalesce(d.first_attempt_at, m.started_at),
           last_attempt_at = coalesce(m.started_at, d.last_attempt_at),
           next_attempt_at = coalesce(m.next_at, d.next_attempt_at),
           job_id = m.next_job, batch_id = CASE WHEN m.next_job IS NULL THEN d.batch_id END, hold = m.hold,
           held_reruns = CASE WHEN m.hold IS NULL THEN d.held_reruns ELSE m.reruns END,
           not_before = CASE WHEN m.hold IS NULL THEN m.not_before ELSE d.not_before END,
           last_hold = CASE WHEN m.hold IS NOT NULL THEN d.last_hold END
      FROM members m
     WHERE d.id = m.id AND m.state IS NULL AND d.id = ANY (ARRAY (SELECT id FROM members WHERE state IS NULL))
), finished AS (
    DELETE FROM postrider_internal.deliveries d USING members m
     WHERE d.id = m.id AND m.state IS NOT NULL AND d.id = ANY (ARRAY (SELECT id FROM members WHERE state IS NOT NULL))
    RETURNING d.id, d.subscription_id, d.topic_id, d.event_uuid, d.event_day, d.batch_id, d.reruns,
              d.time_to_live_since, d.redelivered_from, d.operation_id, m.state, m.reason, m.error, m.excerpt,
              m.retry_policy, m.dead_letter_id, @time_scale::float8 AS time_scale,
              coalesce(nullif(m.number, 0), d.attempts) AS attempts,
              CASE WHEN m.number > 0 THEN m.status ELSE d.last_status END AS last_status,
              coalesce(m.outcome, d.last_outcome) AS last_outcome,
              coalesce(d.first_attempt_at, m.started_at) AS first_attempt_at,
              coalesce(m.started_at, d.last_attempt_at) AS last_attempt_at
), left_batch AS (
    INSERT INTO postrider_internal.left_members (batch_id, delivery_id, left_at, left_after, left_reason)
    SELECT batch_id, id, now(), attempts_made, coalesce(reason, state) FROM members
     WHERE batch_id IS NOT NULL AND (next_job IS NOT NULL OR NOT ends AND state IS NOT NULL)
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
next_jobs AS (
    INSERT INTO postrider_internal.new_jobs
    SELECT j.*
      FROM members m, postrider_internal.attempt_job(
           m.next_job, m.next_at, m.subscription_id, delivery => m.id, number => m.attempts_made + 1) j
     WHERE m.next_job IS NOT NULL
     UNION ALL
    SELECT j.*
      FROM batches b, postrider_internal.attempt_job(
           b.job_id, b.next_attempt_at, b.subscription_id, batch => b.id, number => b.attempts + 1) j
     WHERE b.verdict = 'retry'
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
,
dead_letters AS (
    INSERT INTO postrider_internal.dead_letters (id, dead_lettered_at, delivery_id, subscription_id, topic_id, topic,
           subscription, endpoint_base_url, reason, attempts, last_outcome, last_status, last_error, last_response,
           first_attempt_at, last_attempt_at, time_to_live_since, published_at, event_time, event_uuid, event_day,
               event_id,
           event_type, subject, source, data_version, schema, traceparent, tracestate, retry_policy, redelivered_from,
           export_state, export_due_at, export_abandon_at, export_attempts, body)
    SELECT f.dead_letter_id, now(), f.id, f.subscription_id, f.topic_id, t.name,
           s.name, s.endpoint_base_url, f.reason, f.attempts, f.last_outcome, f.last_status, f.error, f.excerpt,
           f.first_attempt_at, f.last_attempt_at, f.time_to_live_since, e.published_at, e.event_time, f.event_uuid,
               f.event_day,
           e.event_id, e.event_type, e.subject, e.source, e.data_version, e.schema, e.traceparent, e.tracestate,
           f.retry_policy, f.redelivered_from,
           CASE WHEN x.due_at IS NOT NULL THEN 'pending' END, x.due_at, x.due_at + x.export_window,
           CASE WHEN x.due_at IS NOT NULL THEN 0 END, e.body
      FROM finished f
     CROSS JOIN LATERAL (
           SELECT * FROM postrider_internal.event_subscriptions s WHERE s.id = f.subscription_id LIMIT 1) s
     CROSS JOIN LATERAL (SELECT * FROM postrider_internal.topics t WHERE t.id = f.topic_id LIMIT 1) t
     CROSS JOIN LATERAL (
           SELECT * FROM postrider_internal.events e WHERE e.id = f.event_uuid AND e.day = f.event_day LIMIT 1) e
      LEFT JOIN LATERAL (
           SELECT coalesce(f.last_attempt_at, now()) + make_interval(secs =>
                      (p.settings ->> 'deadLetterDelayInSeconds')::float8 / f.time_scale) AS due_at,
                  make_interval(secs => (p.settings ->> 'deadLetterExportWindowInSeconds')::float8
                      / f.time_scale) AS export_window
             FROM postrider_internal.retry_policies p
            WHERE p.name = f.retry_policy
              AND s.settings #>> '{deadLetterDestination,endpointType}' IN ('Blob', 'StorageBlob') LIMIT 1) x ON true
     WHERE f.state = 'dead_lettered'
)
SELECT coalesce(array_agg(id), '{}') FROM token
