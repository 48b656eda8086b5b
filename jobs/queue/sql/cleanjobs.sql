-- Deletes up to $1 jobs that River finalized an hour ago or longer.
DELETE FROM postrider_internal.river_job WHERE id IN (
    SELECT id FROM postrider_internal.river_job
     WHERE state IN ('completed', 'cancelled', 'discarded') AND finalized_at < now() - interval '1 hour'
     LIMIT $1 FOR UPDATE SKIP LOCKED)
