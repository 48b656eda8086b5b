-- T1 of a request with very many deliveries: stores its events and one route with its job. It returns the version of
-- the catalog that it found.
-- events.sql
route AS (
    INSERT INTO postrider_internal.routes (topic_id, event_day, event_uuids, job_id)
    SELECT (@events.topic_id)[1], (now() AT TIME ZONE 'UTC')::date, @events.id,
           nextval('postrider_internal.river_job_id_seq') FROM fresh
    RETURNING id, job_id
), job AS (
    INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT job_id, 'available', jsonb_build_object('route', id), 'route', 'routes', 1, 1000, now() FROM route
)
SELECT version FROM postrider_internal.catalog
