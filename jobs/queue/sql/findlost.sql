-- Locks the running jobs, of @kinds, of nodes that are not registered. It skips jobs that are being recorded.
SELECT j.id FROM postrider_internal.river_job j
 WHERE j.state = 'running' AND j.kind = ANY (@kinds::text[])
   AND NOT EXISTS (SELECT FROM postrider_internal.nodes n
                    WHERE n.id = j.attempted_by[array_upper(j.attempted_by, 1)])
 ORDER BY j.id FOR UPDATE OF j SKIP LOCKED
