-- Makes one step of a group of routes, if the catalog still has the version ($1) that the filters were taken from. It
-- returns the version that it found, and how many routes are not finished. $6 to $10 are the columns of the routes;
-- $11 to $18 those of the deliveries.
--
-- The job row is the token, as for a delivery attempt: only the statement that deletes it creates deliveries, moves
-- the route on, and inserts the next step's job, which is a new row. So a step is made once, whichever node has the
-- job.
--
-- The time to live of these deliveries began when their event was accepted.
WITH fresh AS (
    SELECT version FROM postrider_internal.catalogue WHERE version = $1
), gone AS (
    DELETE FROM postrider_internal.river_job j USING fresh
     WHERE j.id = ANY ($6::bigint[]) AND j.kind = 'route' RETURNING j.id
), step AS MATERIALIZED (
    SELECT r.id, s.finished, s.next_event, s.after_subscription,
           CASE WHEN NOT s.finished THEN nextval('postrider_internal.river_job_id_seq') END AS job_id
      FROM unnest($6::bigint[], $7::bigint[], $8::bool[], $9::int[], $10::bigint[])
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
    INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT job_id, 'available', jsonb_build_object('route', id), 'route', 'routes', 1, 1000, now()
      FROM step WHERE NOT finished
), matches AS (
    SELECT m.event_uuid, m.topic_id, m.subscription_id, m.admitted, m.event_bytes, m.event_day, m.owed_since, m.place,
           false AS offered
      FROM unnest($11::bigint[], $12::date[], $13::timestamptz[], $14::uuid[],
                  $15::bigint[], $16::bigint[], $17::bool[], $18::int[]) WITH ORDINALITY
           AS m(route_id, event_day, owed_since, event_uuid, topic_id, subscription_id, admitted, event_bytes, place)
      JOIN step ON step.id = m.route_id
), -- deliveries.sql
, entries AS (
    SELECT topic_id, subscription_id, 'owed' AS kind, count(*) AS count FROM created GROUP BY 1, 2
     UNION ALL
    -- A publish by SQL is counted with the first step of its route.
    SELECT r.topic_id, 0, 'published', sum(cardinality(r.event_uuids))
      FROM step JOIN postrider_internal.routes r ON r.id = step.id
     WHERE r.by_sql AND r.next_event = 0 AND r.after_subscription = 0
       AND (step.finished OR step.next_event > 0 OR step.after_subscription > 0) GROUP BY 1
), counted AS (
    INSERT INTO postrider_internal.rollup_deltas (slot, entries)
    SELECT (topic_id + subscription_id) % 8,
           array_agg(ROW (date_trunc('minute', now()), topic_id, subscription_id, kind, '', NULL, count,
                          NULL)::postrider_internal.rollup_entry)
      FROM entries GROUP BY 1
)
-- begin matched
-- matched.sql
-- end
SELECT version, (SELECT count(*) FROM step WHERE NOT finished) FROM postrider_internal.catalogue
