-- Locks those of @jobs, of @kinds, that run at @node. It waits for locked jobs: those that are left out run again only
-- after 15 s.
SELECT j.id FROM postrider_internal.river_job j
 WHERE j.id = ANY (@jobs::bigint[]) AND j.kind = ANY (@kinds::text[])
   AND j.state = 'running' AND j.attempted_by[array_upper(j.attempted_by, 1)] = @node
 ORDER BY j.id FOR UPDATE
