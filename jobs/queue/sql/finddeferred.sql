-- Locks the jobs $3, of the kinds $1, that run at the node $2. It waits for locked jobs: River would reschedule a job
-- that is left out.
SELECT j.id FROM postrider_internal.river_job j
 WHERE j.id = ANY ($3::bigint[]) AND j.kind = ANY ($1::text[])
   AND j.state = 'running' AND j.attempted_by[array_upper(j.attempted_by, 1)] = $2
 ORDER BY j.id FOR UPDATE
