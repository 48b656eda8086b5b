-- What T1 returns, see publish.sql.
SELECT c.version, EXISTS (SELECT FROM fresh), now(), clock_timestamp(), l.ids, l.jobs, l.positions
  FROM postrider_internal.catalog c CROSS JOIN (
       SELECT coalesce(array_agg(id), '{}') AS ids, coalesce(array_agg(job_id), '{}') AS jobs,
              coalesce(array_agg(position), '{}') AS positions
         FROM created WHERE local) l
