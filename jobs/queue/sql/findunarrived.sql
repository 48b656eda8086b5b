-- Locks the running jobs, of @kinds, of @node that are not among its @jobs 15 s after their fetch.
SELECT j.id FROM postrider_internal.river_job j
 WHERE j.state = 'running' AND j.kind = ANY (@kinds::text[]) AND j.attempted_by[array_upper(j.attempted_by, 1)] = @node
   AND j.attempted_at < now() - interval '15 seconds' AND j.id <> ALL (@jobs::bigint[])
 ORDER BY j.id FOR UPDATE SKIP LOCKED
