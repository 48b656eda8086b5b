-- T1: stores events, their deliveries, and one job per delivery. It returns the version of the catalog that it found,
-- whether it stored the events, the times of its transaction and of the clock, and the deliveries whose jobs this
-- node's workers have already.
-- events.sql
matches AS (
    SELECT m.*, (now() AT TIME ZONE 'UTC')::date AS event_day, now() AS time_to_live_since
      FROM fresh CROSS JOIN @deliveries WITH ORDINALITY AS m(@deliveries.*, position)
), -- deliveries.sql
SELECT c.version, EXISTS (SELECT FROM fresh), now(), clock_timestamp(), l.ids, l.jobs, l.positions
  FROM postrider_internal.catalog c CROSS JOIN (
       SELECT coalesce(array_agg(id), '{}') AS ids, coalesce(array_agg(job_id), '{}') AS jobs,
              coalesce(array_agg(position), '{}') AS positions
         FROM created WHERE local) l
