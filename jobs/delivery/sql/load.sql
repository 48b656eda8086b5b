-- Reads @deliveries, which are attempted alone, with their events.
--
-- A body is returned only while it and those before it fit into @free bytes; its length is known without reading it.
-- The first one is always returned: a relayed event's may be larger, and would never be.
-- LATERAL with LIMIT keeps the lookup of each event an index scan of its day's partition; for a plain join the planner
-- may read whole partitions. @from and @until bound the days, and so the partitions that are opened: with all of them
-- planning took a third of the time.
SELECT d.id, d.subscription_id, d.job_id, d.event_uuid, d.attempts, d.skipped_offsets, d.time_to_live_since,
       d.next_attempt_at, d.not_before, d.first_attempt_at, clock_timestamp(),
       e.id IS NULL, coalesce(e.schema, ''), coalesce(e.event_id, ''), coalesce(e.event_type, ''),
       coalesce(e.subject, ''), coalesce(e.source, ''), coalesce(e.data_version, ''),
       CASE WHEN e.schema = 'CustomEventSchema' THEN e.event_time END,
       coalesce(e.traceparent, ''), coalesce(e.tracestate, ''),
       coalesce(st.hold, ''), coalesce(st.stop_time_to_live, false), coalesce(d.last_hold, ''),
       CASE WHEN sum(octet_length(e.body)) OVER ids <= @free OR row_number() OVER ids = 1 THEN e.body END,
       d.event_day NOT BETWEEN @from::date AND @until::date
  FROM postrider_internal.deliveries d
  LEFT JOIN LATERAL (
       SELECT * FROM postrider_internal.event_subscription_states st
        WHERE st.subscription_id = d.subscription_id LIMIT 1) st ON true
  LEFT JOIN LATERAL (
       SELECT * FROM postrider_internal.events e
        WHERE e.id = d.event_uuid AND e.day = d.event_day AND e.day BETWEEN @from AND @until AND e.erased_at IS NULL
        LIMIT 1) e ON true
 WHERE d.id = ANY (@deliveries)
WINDOW ids AS (ORDER BY d.id)
