-- Returns the jobs of results that cannot be recorded now: another transaction has locked the job ($1), its delivery
-- ($2), its batch ($3) or its probation ($4). The statement's own locks end with it.
WITH input AS (
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[])
        AS i(job_id, delivery_id, batch_id, probation_key)
), jobs AS MATERIALIZED (
    SELECT id FROM postrider_internal.river_job WHERE id = ANY ($1) ORDER BY id FOR UPDATE SKIP LOCKED
), deliveries AS MATERIALIZED (
    SELECT id FROM postrider_internal.deliveries WHERE id = ANY ($2) ORDER BY id FOR UPDATE SKIP LOCKED
), batches AS MATERIALIZED (
    SELECT id FROM postrider_internal.batches WHERE id = ANY ($3) ORDER BY id FOR UPDATE SKIP LOCKED
), probations AS MATERIALIZED (
    SELECT probation_key AS key FROM postrider_internal.probations WHERE probation_key = ANY ($4)
     ORDER BY probation_key FOR UPDATE SKIP LOCKED
)
SELECT coalesce(array_agg(job_id), '{}') FROM input
 WHERE job_id IN (SELECT id FROM postrider_internal.river_job WHERE id = ANY ($1) EXCEPT SELECT id FROM jobs)
    OR delivery_id IN (SELECT id FROM postrider_internal.deliveries WHERE id = ANY ($2)
                       EXCEPT SELECT id FROM deliveries)
    OR batch_id IN (SELECT id FROM postrider_internal.batches WHERE id = ANY ($3) EXCEPT SELECT id FROM batches)
    OR probation_key IN (SELECT probation_key FROM postrider_internal.probations WHERE probation_key = ANY ($4)
                         EXCEPT SELECT key FROM probations)
