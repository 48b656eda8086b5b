-- The columns of an AttemptLine.
a.delivery_id, a.batch_id, a.number, a.reruns, a.due_at, a.started_at, a.duration_ms::float8, a.dns_ms::float8,
           a.connect_ms::float8, a.tls_ms::float8, a.first_byte_ms::float8, a.status, a.outcome, a.error, a.verdict,
           a.next_attempt_at, a.why, a.step_ms, a.floor_ms, a.jitter_ms, a.retry_after_ms, a.hold, a.skipped_offsets,
           a.late, a.node, a.request_headers, a.response_headers, a.response_excerpt
