-- Stores for events that were published by SQL how many event subscriptions matched. It is a part of fanout.sql if
-- there are such events. $19 to $22 are their columns.
, matched AS MATERIALIZED (
    SELECT m.event_uuid, m.event_day, m.count
      FROM unnest($19::bigint[], $20::uuid[], $21::date[], $22::int[]) AS m(route_id, event_uuid, event_day, count)
      JOIN step ON step.id = m.route_id
), noted AS (
    UPDATE postrider_internal.events e SET matched = coalesce(e.matched, 0) + m.count, catalogue_version = $1
      FROM matched m
     WHERE e.day = m.event_day AND e.id = m.event_uuid AND e.day = ANY (ARRAY (SELECT event_day FROM matched))
       AND e.id = ANY (ARRAY (SELECT event_uuid FROM matched))
)
