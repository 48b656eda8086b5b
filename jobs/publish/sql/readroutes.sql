-- Reads the routes of these jobs, each with at most @events events from its position on.
SELECT id, job_id, topic_id, event_day, cardinality(event_uuids) AS total, next_event AS next,
       after_subscription AS after,
       to_regclass('postrider_internal.events_' || to_char(event_day, 'YYYYMMDD')) IS NOT NULL AS partition, by_sql,
       event_uuids[next_event + 1 : next_event + @events] AS event_uuids
  FROM postrider_internal.routes WHERE job_id = ANY (@jobs::bigint[]) ORDER BY id
