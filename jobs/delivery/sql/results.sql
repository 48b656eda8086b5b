-- The results to record: a row for each job. It is a part of record.sql, record_ends.sql and record_whole.sql.
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
