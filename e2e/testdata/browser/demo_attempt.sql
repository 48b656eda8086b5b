-- An attempt of the delivery in docs/guides/dashboard.md.
INSERT INTO postrider_internal.delivery_attempts (day, delivery_id, subscription_id, job_id, number,
    due_at, started_at, duration_us, dns_us, connect_us, tls_us, first_byte_us, status, outcome, error, verdict,
    next_attempt_at, rule, step_ms, floor_ms, jitter_ms, node, response_headers, response_excerpt)
SELECT d.event_day, d.id, d.subscription_id, d.id, $2, now() + $3, now() + $3, $4, nullif($5, 0), nullif($6, 0),
       nullif($7, 0), nullif($8, 0), nullif($9, 0), $10, nullif($11, ''), 'retry', now() + $12, $13, $14, $15, $16,
       'node-1', convert_to(nullif($17, ''), 'UTF8'), convert_to(nullif($18, ''), 'UTF8')
  FROM postrider_internal.deliveries d WHERE d.id = $1;
