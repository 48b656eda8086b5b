-- Makes one step of a group of routes if the catalog still has the version of the filters. It returns the version
-- that it found, and how many routes are not finished.
--
-- The job row is the token: only the statement that deletes it creates deliveries, moves the route on and inserts the
-- next step's job, which is a new row. The time to live of these deliveries began when their event was accepted.
WITH fresh AS (
    SELECT version FROM postrider_internal.catalog WHERE version = @version
), gone AS (
    DELETE FROM postrider_internal.river_job j USING fresh
     WHERE j.id = ANY (@routes_job_id) AND j.kind = 'route' RETURNING j.id
), step AS MATERIALIZED (
    SELECT r.id, s.finished, s.next_event, s.after_subscription,
           CASE WHEN NOT s.finished THEN nextval('postrider_internal.river_job_id_seq') END AS job_id
      FROM unnest(@routes_job_id::bigint[], @routes_route_id::bigint[], @routes_finished::bool[],
                  @routes_next_event::int[], @routes_after_subscription::bigint[])
           AS s(job_id, route_id, finished, next_event, after_subscription)
      JOIN gone ON gone.id = s.job_id
      JOIN postrider_internal.routes r ON r.id = s.route_id AND r.job_id = s.job_id
), ended AS (
    DELETE FROM postrider_internal.routes r USING step WHERE r.id = step.id AND step.finished
), moved AS (
    UPDATE postrider_internal.routes r
       SET next_event = step.next_event, after_subscription = step.after_subscription, job_id = step.job_id
      FROM step WHERE r.id = step.id AND NOT step.finished
), successors AS (
    INSERT INTO postrider_internal.new_jobs
    SELECT j.*
      FROM step s, postrider_internal.new_job(s.job_id, 'route', jsonb_build_object('route', s.id), now()) j
     WHERE NOT s.finished
), matches AS (
    SELECT m.*, false AS reserved
      FROM unnest(@deliveries_event_uuid::uuid[], @deliveries_topic_id::bigint[], @deliveries_subscription_id::bigint[],
                  @deliveries_admitted::bool[], @deliveries_event_bytes::int[], @deliveries_route_id::bigint[],
                  @deliveries_event_day::date[], @deliveries_time_to_live_since::timestamptz[])
           WITH ORDINALITY AS m(event_uuid, topic_id, subscription_id, admitted, event_bytes, route_id, event_day,
                                time_to_live_since, position)
      JOIN step ON step.id = m.route_id
), -- created.sql
-- deliveries.sql
, entries AS (
    SELECT topic_id, subscription_id, 'matched' AS kind, count(*) AS count FROM created GROUP BY 1, 2
     UNION ALL
    -- A publish by SQL is counted with the first step of its route.
    SELECT r.topic_id, 0, 'published', sum(cardinality(r.event_uuids))
      FROM step JOIN postrider_internal.routes r ON r.id = step.id
     WHERE r.by_sql AND r.next_event = 0 AND r.after_subscription = 0
       AND (step.finished OR step.next_event > 0 OR step.after_subscription > 0) GROUP BY 1
), counted AS (
    INSERT INTO postrider_internal.rollup_deltas (entries)
    SELECT array_agg(postrider_internal.count_entry(topic_id, subscription_id, kind, count))
      FROM entries HAVING count(*) > 0
), matched AS MATERIALIZED (
    SELECT m.event_uuid, m.event_day, m.count
      FROM unnest(@matched_route_id::bigint[], @matched_event_uuid::uuid[], @matched_event_day::date[],
                  @matched_count::int[]) AS m(route_id, event_uuid, event_day, count)
      JOIN step ON step.id = m.route_id
), noted AS (
    -- How many event subscriptions matched an event that was published by SQL.
    UPDATE postrider_internal.events e SET matched = coalesce(e.matched, 0) + m.count, catalog_version = @version
      FROM matched m
     WHERE e.day = m.event_day AND e.id = m.event_uuid AND e.day = ANY (ARRAY (SELECT event_day FROM matched))
       AND e.id = ANY (ARRAY (SELECT event_uuid FROM matched))
)
SELECT version, (SELECT count(*) FROM step WHERE NOT finished) FROM postrider_internal.catalog
