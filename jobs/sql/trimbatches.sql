-- Deletes up to $2 batches that finished before $1, with the members that left them.
WITH old AS MATERIALIZED (
    SELECT id FROM postrider_internal.batches WHERE finished_at < $1 ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED
), members AS (
    DELETE FROM postrider_internal.left_members WHERE batch_id = ANY (ARRAY (SELECT id FROM old))
)
DELETE FROM postrider_internal.batches WHERE id = ANY (ARRAY (SELECT id FROM old))
