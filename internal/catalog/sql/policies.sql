-- Lists the retry policies, the built-in ones by age first, then the others by name. The JSON has the names of Go's
-- policy.Policy; its durations are nanoseconds.
SELECT p.version, jsonb_build_object(
           'Name', p.name, 'Source', p.source, 'BuiltIn', p.built_in, 'Basis', p.basis, 'Expiry', p.expiry,
           'AckTimeout', (postrider_internal.seconds(p.ack_timeout) * 1e9)::bigint,
           'LateResponseWindow', (postrider_internal.seconds(p.late_response_window) * 1e9)::bigint,
           'Steps', (SELECT jsonb_agg((postrider_internal.seconds(i) * 1e9)::bigint ORDER BY n)
                       FROM unnest(p.steps) WITH ORDINALITY AS u(i, n)),
           'Tail', (postrider_internal.seconds(p.tail) * 1e9)::bigint,
           'RetryWindow', (postrider_internal.seconds(p.retry_window) * 1e9)::bigint,
           'JitterFraction', p.jitter_fraction,
           'JitterCap', (postrider_internal.seconds(p.jitter_cap) * 1e9)::bigint,
           'DefaultTTL', (postrider_internal.seconds(p.default_ttl) * 1e9)::bigint,
           'MinTTL', (postrider_internal.seconds(p.min_ttl) * 1e9)::bigint,
           'MaxTTL', (postrider_internal.seconds(p.max_ttl) * 1e9)::bigint,
           'DefaultMaxAttempts', p.default_max_attempts, 'MinMaxAttempts', p.min_max_attempts,
           'MaxMaxAttempts', p.max_max_attempts, 'HonorRetryAfter', p.honor_retry_after,
           'RetryAfterCap', (postrider_internal.seconds(p.retry_after_cap) * 1e9)::bigint,
           'RetryTransportErrors', p.retry_transport_errors, 'DeadLetterDefault', p.dead_letter_default,
           'DeadLetterDelay', (postrider_internal.seconds(p.dead_letter_delay) * 1e9)::bigint,
           'DeadLetterExportWindow', (postrider_internal.seconds(p.dead_letter_export_window) * 1e9)::bigint,
           'Batching', p.batching,
           'Probation', jsonb_build_object(
               'Scope', p.probation_scope, 'Trigger', p.probation_trigger, 'Action', p.probation_action,
               'First', (postrider_internal.seconds(p.probation_first) * 1e9)::bigint,
               'Max', (postrider_internal.seconds(p.probation_max) * 1e9)::bigint,
               'ByOutcome', (SELECT jsonb_object_agg(b.outcome,
                                                     (postrider_internal.seconds(b.duration) * 1e9)::bigint)
                               FROM postrider_internal.retry_policy_probations b WHERE b.policy = p.name)),
           'Cells', (SELECT coalesce(jsonb_agg(jsonb_build_object(
                                'EndpointKind', c.endpoint_kind, 'Condition', c.condition, 'Action', c.action,
                                'MinDelay', (postrider_internal.seconds(c.min_delay) * 1e9)::bigint)
                                ORDER BY c.endpoint_kind, c.condition), '[]')
                       FROM postrider_internal.retry_policy_cells c WHERE c.policy = p.name)) AS policy
  FROM postrider_internal.retry_policies p
 WHERE p.deleted_at IS NULL
 ORDER BY p.built_in DESC, CASE WHEN p.built_in THEN substring(p.source from '\d{4}(?:-\d\d)*$') END, p.name
