-- Locks the jobs $3, of the kinds $1, that run at no other node than $2.
SELECT j.id FROM postrider_internal.river_job j
 WHERE j.id = ANY ($3::bigint[]) AND j.kind = ANY ($1::text[])
   AND (j.state <> 'running' OR j.attempted_by[array_upper(j.attempted_by, 1)] = $2)
 ORDER BY j.id FOR UPDATE SKIP LOCKED
