-- All retry policies, the built-in ones by age first, then the others by name. Durations are seconds; those in cells
-- and probations are nanoseconds, as Go stores them.
SELECT p.name, p.version, p.built_in, p.source, p.basis, p.expiry,
       postrider_internal.seconds(p.ack_timeout) AS ack_timeout,
       postrider_internal.seconds(p.late_response_window) AS late_response_window,
       (SELECT array_agg(postrider_internal.seconds(i) ORDER BY o)
          FROM unnest(p.steps) WITH ORDINALITY AS u(i, o)) AS steps,
       postrider_internal.seconds(p.tail) AS tail,
       coalesce(postrider_internal.seconds(p.retry_window), 0) AS retry_window,
       p.jitter_fraction, postrider_internal.seconds(p.jitter_cap) AS jitter_cap,
       postrider_internal.seconds(p.default_ttl) AS default_ttl, postrider_internal.seconds(p.min_ttl) AS min_ttl,
       postrider_internal.seconds(p.max_ttl) AS max_ttl,
       coalesce(p.default_max_attempts, 0) AS default_max_attempts, p.min_max_attempts, p.max_max_attempts,
       p.honor_retry_after, postrider_internal.seconds(p.retry_after_cap) AS retry_after_cap,
       p.retry_transport_errors, p.dead_letter_default,
       postrider_internal.seconds(p.dead_letter_delay) AS dead_letter_delay,
       postrider_internal.seconds(p.dead_letter_export_window) AS dead_letter_export_window, p.batching,
       p.probation_scope, p.probation_trigger, p.probation_action,
       postrider_internal.seconds(p.probation_first) AS probation_first,
       postrider_internal.seconds(p.probation_max) AS probation_max,
       coalesce((SELECT jsonb_agg(jsonb_build_object(
                        'EndpointKind', c.endpoint_kind, 'Condition', c.condition, 'Action', c.action,
                        'MinDelay', (postrider_internal.seconds(c.min_delay) * 1e9)::bigint)
                        ORDER BY c.endpoint_kind, c.condition)
                   FROM postrider_internal.retry_policy_cells c WHERE c.policy = p.name), '[]') AS cells,
       (SELECT jsonb_object_agg(b.outcome, (postrider_internal.seconds(b.duration) * 1e9)::bigint)
          FROM postrider_internal.retry_policy_probations b WHERE b.policy = p.name) AS probations
  FROM postrider_internal.retry_policies p
 WHERE p.deleted_at IS NULL
 ORDER BY p.built_in DESC, CASE WHEN p.built_in THEN substring(p.source from '\d{4}(?:-\d\d)*$') END, p.name
