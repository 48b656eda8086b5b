-- Deletes up to $2 batches that finished before $1, with their members.
WITH old AS MATERIALIZED (
    SELECT id FROM postrider_internal.batches WHERE finished_at < $1 ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED
), members AS (
    DELETE FROM postrider_internal.batch_members WHERE batch_id = ANY (ARRAY (SELECT id FROM old))
)
DELETE FROM postrider_internal.batches WHERE id = ANY (ARRAY (SELECT id FROM old))
