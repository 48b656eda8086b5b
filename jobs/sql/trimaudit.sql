-- Deletes up to $2 rows of the audit from before $1.
DELETE FROM postrider_internal.audit WHERE id = ANY (ARRAY (
    SELECT id FROM postrider_internal.audit WHERE at < $1 ORDER BY at, id LIMIT $2 FOR UPDATE SKIP LOCKED))
