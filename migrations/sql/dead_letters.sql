-- Stores the dead letters of the deliveries "finished". It is a part of end_deliveries and of record.sql.
dead_letters AS (
    -- A dead letter outlives its event, and so copies it. One that is to be exported is due some time after its last
    -- attempt, or after now if none was made.
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
