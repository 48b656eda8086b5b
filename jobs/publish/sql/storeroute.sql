-- T1 of a request with very many deliveries: stores its events and one route with its job. It returns the version of
-- the catalog that it found.
WITH fresh AS (
    SELECT version FROM postrider_internal.catalog WHERE version = @version
), -- events.sql
route AS (
    INSERT INTO postrider_internal.routes (topic_id, event_day, event_uuids, job_id)
    SELECT (@events_topic_id::bigint[])[1], (now() AT TIME ZONE 'UTC')::date, @events_id,
           nextval('postrider_internal.river_job_id_seq') FROM fresh
    RETURNING id, job_id
), job AS (
    INSERT INTO postrider_internal.new_jobs
    SELECT j.*
      FROM route r, postrider_internal.new_job(r.job_id, 'route', jsonb_build_object('route', r.id), now()) j
)
SELECT version FROM postrider_internal.catalog
