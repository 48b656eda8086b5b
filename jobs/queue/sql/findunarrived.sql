-- Locks the running jobs, of the kinds $1, of the node $2 that are not among its jobs $3 15 s after their fetch.
SELECT j.id FROM postrider_internal.river_job j
 WHERE j.state = 'running' AND j.kind = ANY ($1::text[]) AND j.attempted_by[array_upper(j.attempted_by, 1)] = $2
   AND j.attempted_at < now() - interval '15 seconds' AND j.id <> ALL ($3::bigint[])
 ORDER BY j.id FOR UPDATE SKIP LOCKED
