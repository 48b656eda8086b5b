-- The variant of T3 for batches whose members all end without a dead letter, see record.sql.
WITH -- results.sql
token AS (
    -- token.sql
), -- attempts.sql
members AS MATERIALIZED (
    SELECT NULL::uuid AS dead_letter_id, NULL::bigint AS next_job, result.* FROM result
), finished AS (
    DELETE FROM postrider_internal.deliveries d USING members m
     WHERE d.batch_id = m.batch_id AND d.batch_id = ANY (ARRAY (SELECT batch_id FROM members))
    -- finished.sql
), -- record_batches.sql
-- ends.sql
SELECT coalesce(array_agg(id), '{}') FROM token
