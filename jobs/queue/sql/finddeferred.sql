-- Locks those of @jobs, of @kinds, that run at @node. It waits for locked jobs: a job that is left out would not run
-- again while this process lives.
SELECT j.id FROM postrider_internal.river_job j
 WHERE j.id = ANY (@jobs::bigint[]) AND j.kind = ANY (@kinds::text[])
   AND j.state = 'running' AND j.attempted_by[array_upper(j.attempted_by, 1)] = @node
 ORDER BY j.id FOR UPDATE
