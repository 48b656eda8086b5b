-- Frees up to @limit dead letters whose export does not exist, so that they are exported again.
WITH lost AS (
    SELECT l.id FROM postrider_internal.dead_letters l
     WHERE l.export_id IS NOT NULL AND NOT EXISTS (SELECT FROM postrider_internal.exports x WHERE x.id = l.export_id)
     ORDER BY l.id LIMIT @limit FOR UPDATE OF l SKIP LOCKED
), freed AS (
    UPDATE postrider_internal.dead_letters l SET export_id = NULL FROM lost WHERE l.id = lost.id RETURNING l.id
)
SELECT 0::bigint, count(*) FROM freed
