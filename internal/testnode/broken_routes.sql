WITH live AS (SELECT id, (args ->> 'route')::bigint AS route FROM postrider_internal.river_job WHERE kind = 'route'
    AND finalized_at IS NULL)
SELECT (SELECT count(*) FROM postrider_internal.routes r WHERE (SELECT count(*) FROM live WHERE live.route = r.id
    AND live.id = r.job_id) <> 1)
     + (SELECT count(*) FROM live WHERE NOT EXISTS (SELECT FROM postrider_internal.routes r WHERE r.id = live.route
         AND r.job_id = live.id))
