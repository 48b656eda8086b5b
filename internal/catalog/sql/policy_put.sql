-- Creates or replaces a retry policy; durations are seconds. A deleted policy of the same name is created again.
INSERT INTO postrider_internal.retry_policies AS p (name, source, ack_timeout, late_response_window, basis, steps, tail,
       retry_window, jitter_fraction, jitter_cap, expiry, default_ttl, min_ttl, max_ttl, default_max_attempts,
       min_max_attempts, max_max_attempts, honor_retry_after, retry_after_cap, retry_transport_errors,
       dead_letter_default, dead_letter_delay, dead_letter_export_window, batching, probation_scope, probation_trigger,
       probation_first, probation_max, probation_action)
VALUES (@name, @source, make_interval(secs => @ack_timeout), make_interval(secs => @late_response_window), @basis,
        ARRAY(SELECT make_interval(secs => s)
                FROM unnest(@steps::double precision[]) WITH ORDINALITY AS u(s, n) ORDER BY n),
        make_interval(secs => @tail), make_interval(secs => nullif(@retry_window::double precision, 0)),
        @jitter_fraction, make_interval(secs => @jitter_cap), @expiry,
        make_interval(secs => @default_ttl), make_interval(secs => @min_ttl), make_interval(secs => @max_ttl),
        nullif(@default_max_attempts::integer, 0), @min_max_attempts, @max_max_attempts, @honor_retry_after,
        make_interval(secs => @retry_after_cap), @retry_transport_errors,
        @dead_letter_default, make_interval(secs => @dead_letter_delay),
        make_interval(secs => @dead_letter_export_window), @batching, @probation_scope, @probation_trigger,
        make_interval(secs => @probation_first), make_interval(secs => @probation_max), @probation_action)
    ON CONFLICT (name) DO UPDATE
   SET source = excluded.source, ack_timeout = excluded.ack_timeout,
       late_response_window = excluded.late_response_window,
       basis = excluded.basis, steps = excluded.steps, tail = excluded.tail, retry_window = excluded.retry_window,
       jitter_fraction = excluded.jitter_fraction, jitter_cap = excluded.jitter_cap, expiry = excluded.expiry,
       default_ttl = excluded.default_ttl, min_ttl = excluded.min_ttl, max_ttl = excluded.max_ttl,
       default_max_attempts = excluded.default_max_attempts, min_max_attempts = excluded.min_max_attempts,
       max_max_attempts = excluded.max_max_attempts, honor_retry_after = excluded.honor_retry_after,
       retry_after_cap = excluded.retry_after_cap, retry_transport_errors = excluded.retry_transport_errors,
       dead_letter_default = excluded.dead_letter_default, dead_letter_delay = excluded.dead_letter_delay,
       dead_letter_export_window = excluded.dead_letter_export_window, batching = excluded.batching,
       probation_scope = excluded.probation_scope, probation_trigger = excluded.probation_trigger,
       probation_first = excluded.probation_first, probation_max = excluded.probation_max,
       probation_action = excluded.probation_action,
       created_at = CASE WHEN p.deleted_at IS NULL THEN p.created_at ELSE now() END, deleted_at = NULL
