-- Takes up to @limit jobs of @queue and @kinds (NULL: all), by priority and time, for @node. Unlike River's own fetch,
-- it reads the table by keys alone: after a vacuum of an empty table, a join read all jobs.
WITH next AS MATERIALIZED (
    SELECT id FROM postrider_internal.river_job
     WHERE state = 'available' AND queue = @queue AND (@kinds::text[] IS NULL OR kind = ANY (@kinds))
       AND scheduled_at <= now()
     ORDER BY priority, scheduled_at, id LIMIT @limit FOR UPDATE SKIP LOCKED
)
UPDATE postrider_internal.river_job j
   SET state = 'running', attempt = j.attempt + 1, attempted_at = now(),
       attempted_by = array_append(
           j.attempted_by[greatest(coalesce(cardinality(j.attempted_by), 0) - 98, 1):], @node::text)
 WHERE j.id = ANY (ARRAY (SELECT id FROM next))
RETURNING j.id, j.attempt, j.max_attempts, j.kind, j.queue, j.priority, j.args, j.metadata,
          j.created_at, j.scheduled_at, j.attempted_at, j.attempted_by
