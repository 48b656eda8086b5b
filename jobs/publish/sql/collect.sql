-- Collects committed publishes by SQL, up to @limit with about @events events: a route for each topic and day, with
-- its job. The rows are the tokens: only the statement that deletes them creates their route. It skips the rows that
-- another node collects.
--
-- The jobs belong to this @node at once: a notification and a fetch would take two more transactions.
WITH waiting AS MATERIALIZED (
    SELECT id, cardinality(event_uuids) AS events FROM postrider_internal.sql_publishes
     ORDER BY id LIMIT @limit FOR UPDATE SKIP LOCKED
), few AS MATERIALIZED (
    SELECT id FROM (SELECT id, sum(events) OVER (ORDER BY id) - events AS before FROM waiting) w WHERE before < @events
), taken AS (
    DELETE FROM postrider_internal.sql_publishes p WHERE p.id = ANY (ARRAY (SELECT id FROM few)) RETURNING p.*
), route AS (
    INSERT INTO postrider_internal.routes (topic_id, event_day, event_uuids, job_id, by_sql)
    SELECT topic_id, event_day, event_uuids, nextval('postrider_internal.river_job_id_seq'), true
      FROM (SELECT topic_id, event_day, array_agg(u.id ORDER BY taken.id, u.position) AS event_uuids
              FROM taken CROSS JOIN unnest(taken.event_uuids) WITH ORDINALITY AS u(id, position)
             GROUP BY topic_id, event_day) grouped
    RETURNING id, job_id
), jobs AS (
    INSERT INTO postrider_internal.new_jobs
    SELECT j.* FROM route r,
           postrider_internal.new_job(r.job_id, 'route', jsonb_build_object('route', r.id), now(), @node::text) j
)
SELECT (SELECT count(*) FROM taken), coalesce((SELECT array_agg(job_id) FROM route), '{}')
