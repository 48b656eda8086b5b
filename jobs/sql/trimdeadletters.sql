-- Deletes up to $2 dead letters that were written before $1 and are not to be exported any more.
DELETE FROM postrider_internal.dead_letters WHERE id = ANY (ARRAY (
    SELECT id FROM postrider_internal.dead_letters
     WHERE dead_lettered_at < $1 AND export_state IS DISTINCT FROM 'pending'
     ORDER BY dead_lettered_at, id LIMIT $2 FOR UPDATE SKIP LOCKED))
