-- The events of "members". The bounds of the day keep the other partitions out of the plan. It is a part of
-- members.sql and open_members.sql.
found AS NOT MATERIALIZED (
    SELECT * FROM postrider_internal.events
     WHERE id = ANY (ARRAY (SELECT event_uuid FROM members)) AND day >= (SELECT min(event_day) FROM members)
       AND day <= (SELECT max(event_day) FROM members) AND erased_at IS NULL
)
SELECT d.id, d.event_uuid, d.time_to_live_since, e.id IS NULL, coalesce(e.schema, ''), coalesce(e.event_id, ''),
       coalesce(e.event_type, ''), coalesce(e.subject, ''), coalesce(e.source, ''), coalesce(e.data_version, ''),
       e.body,
       CASE WHEN e.schema = 'CustomEventSchema' THEN e.event_time END,
       coalesce(e.traceparent, ''), coalesce(e.tracestate, '')
  FROM members d
  LEFT JOIN found e ON e.id = d.event_uuid AND e.day = d.event_day
 ORDER BY d.id
