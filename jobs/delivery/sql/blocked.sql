-- The jobs, deliveries, batches and probations that another transaction has locked: those that exist and cannot be
-- locked now. Its own locks end with the statement.
WITH jobs AS MATERIALIZED (
    SELECT id FROM postrider_internal.river_job WHERE id = ANY ($1::bigint[]) ORDER BY id FOR UPDATE SKIP LOCKED
), deliveries AS MATERIALIZED (
    SELECT id FROM postrider_internal.deliveries WHERE id = ANY ($2::bigint[]) ORDER BY id FOR UPDATE SKIP LOCKED
), batches AS MATERIALIZED (
    SELECT id FROM postrider_internal.batches WHERE id = ANY ($3::bigint[]) ORDER BY id FOR UPDATE SKIP LOCKED
), rests AS MATERIALIZED (
    SELECT probation_key FROM postrider_internal.probations
        WHERE probation_key = ANY ($4::bytea[]) ORDER BY probation_key
       FOR UPDATE SKIP LOCKED
)
SELECT ARRAY (SELECT id FROM postrider_internal.river_job WHERE id = ANY ($1::bigint[]) EXCEPT SELECT id FROM jobs),
       ARRAY (SELECT id FROM postrider_internal.deliveries WHERE id = ANY ($2::bigint[]) EXCEPT SELECT id
              FROM deliveries),
       ARRAY (SELECT id FROM postrider_internal.batches WHERE id = ANY ($3::bigint[]) EXCEPT SELECT id FROM batches),
       ARRAY (SELECT probation_key FROM postrider_internal.probations
              WHERE probation_key = ANY ($4::bytea[]) EXCEPT SELECT probation_key FROM rests)
