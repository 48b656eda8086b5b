-- T3 of single deliveries that end without a dead letter, or of batches that all end so, see record.sql. Most groups
-- consist of these, and the parts that are not here take 0.4 ms of PostgreSQL's time though they find nothing to do.
WITH input AS (
    SELECT * FROM @results AS r(@results.*)
), token AS (
    DELETE FROM postrider_internal.river_job j USING input i
     WHERE j.id = ANY (@results.job_id) AND j.id = i.job_id AND j.created_at = i.job_created_at
    RETURNING j.id
), -- attempts.sql
members AS MATERIALIZED (
-- begin each
    SELECT result.delivery_id AS id, NULL::uuid AS dead_letter_id, result.* FROM result
-- end
-- begin whole
    SELECT NULL::uuid AS dead_letter_id, NULL::bigint AS next_job, result.* FROM result
-- end
), -- finished.sql
-- begin whole
-- record_batches.sql
-- end
@ends
SELECT coalesce(array_agg(id), '{}') FROM token
