-- Deletes up to @limit batches that finished before @before, with the members that left them.
WITH old AS MATERIALIZED (
    SELECT id FROM postrider_internal.batches WHERE finished_at < @before ORDER BY id LIMIT @limit
       FOR UPDATE SKIP LOCKED
), members AS (
    DELETE FROM postrider_internal.left_members WHERE batch_id = ANY (ARRAY (SELECT id FROM old))
)
DELETE FROM postrider_internal.batches WHERE id = ANY (ARRAY (SELECT id FROM old))
