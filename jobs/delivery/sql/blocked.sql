-- Returns the jobs of results that cannot be recorded now: another transaction has locked the job (@jobs), its
-- delivery (@deliveries), its batch (@batches), a member of that, or one of its probations (@probations). A result has
-- several rows if it has probations. The statement's own locks end with it. It runs after a lock was not granted, and
-- for each group while results wait.
WITH input AS (
    SELECT * FROM unnest(@jobs::bigint[], @deliveries::bigint[], @batches::bigint[], @probations::bytea[])
        AS i(job_id, delivery_id, batch_id, probation_key)
), jobs AS MATERIALIZED (
    SELECT id FROM postrider_internal.river_job WHERE id = ANY (@jobs) ORDER BY id FOR UPDATE SKIP LOCKED
), deliveries AS MATERIALIZED (
    SELECT id FROM postrider_internal.deliveries WHERE id = ANY (@deliveries) ORDER BY id FOR UPDATE SKIP LOCKED
), members AS MATERIALIZED (
    SELECT id, batch_id FROM postrider_internal.deliveries WHERE batch_id = ANY (@batches)
     ORDER BY id FOR UPDATE SKIP LOCKED
), batches AS MATERIALIZED (
    SELECT id FROM postrider_internal.batches WHERE id = ANY (@batches) ORDER BY id FOR UPDATE SKIP LOCKED
), probations AS MATERIALIZED (
    SELECT probation_key AS key FROM postrider_internal.probations WHERE probation_key = ANY (@probations)
     ORDER BY probation_key FOR UPDATE SKIP LOCKED
)
SELECT coalesce(array_agg(DISTINCT job_id), '{}') FROM input
 WHERE job_id IN (SELECT id FROM postrider_internal.river_job WHERE id = ANY (@jobs) EXCEPT SELECT id FROM jobs)
    OR delivery_id IN (SELECT id FROM postrider_internal.deliveries WHERE id = ANY (@deliveries)
                       EXCEPT SELECT id FROM deliveries)
    OR batch_id IN (SELECT id FROM postrider_internal.batches WHERE id = ANY (@batches) EXCEPT SELECT id FROM batches)
    OR batch_id IN (SELECT batch_id FROM (
           SELECT id, batch_id FROM postrider_internal.deliveries WHERE batch_id = ANY (@batches)
           EXCEPT SELECT id, batch_id FROM members) locked)
    OR probation_key IN (SELECT probation_key FROM postrider_internal.probations WHERE probation_key = ANY (@probations)
                         EXCEPT SELECT key FROM probations)
