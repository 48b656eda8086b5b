-- Lists a page of events, the newest first. The conditions without an index are outside of what is read in order:
-- PostgreSQL expects few events of their own day, and would sort all of them. An event of another day is one that a
-- redelivery stored again. @end is the last event that the search for the page may read.
SELECT e.id AS system_id, t.name AS topic, e.event_id, e.event_type, e.subject, nullif(e.source, '') AS source,
       e.event_time, e.published_at, e.schema, e.matched, octet_length(e.body) AS body_bytes,
       r.edited_from, r.edited_by, NULL::jsonb AS edit
  FROM (SELECT e.*
          FROM (SELECT *
                  FROM postrider_internal.events e -- events_where.sql
                   AND (@events::uuid[] IS NULL OR e.id = ANY (@events))
                   AND (@end::uuid IS NULL OR CASE WHEN @backwards THEN e.id <= @end ELSE e.id >= @end END)
                 ORDER BY CASE WHEN @backwards THEN e.id END, e.id DESC
                OFFSET 0) e
         WHERE e.day = (e.published_at AT TIME ZONE 'UTC')::date
           AND (@topics::bigint[] IS NULL OR e.topic_id = ANY (@topics))
           AND (@type::text IS NULL OR e.event_type = @type)
           AND (@subject::text IS NULL OR e.subject = @subject)
           AND (@prefix::text IS NULL OR starts_with(e.subject, @prefix))
           AND (NOT @unmatched OR e.matched = 0)
           AND (@value::text IS NULL OR starts_with(e.subject, @or_subject::text)
                OR CASE WHEN @needle::bytea IS NULL OR position(@needle IN e.body) > 0
                        THEN postrider.has_value(postrider.try_jsonb(e.body), @value) END)
         LIMIT @limit) e
  JOIN postrider_internal.topics t ON t.id = e.topic_id
  LEFT JOIN postrider_internal.repairs r ON r.system_id = e.id
 ORDER BY CASE WHEN @backwards THEN e.id END, e.id DESC
