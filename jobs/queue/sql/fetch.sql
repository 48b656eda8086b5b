-- Takes up to $3 jobs of the queue $1 and the kinds $2 (NULL: all), by priority and time, for the node $4. Unlike
-- River's own fetch, it reads the table by keys alone: after a vacuum of an empty table, a join read all jobs.
WITH next AS MATERIALIZED (
    SELECT id FROM postrider_internal.river_job
     WHERE state = 'available' AND queue = $1 AND ($2::text[] IS NULL OR kind = ANY ($2)) AND scheduled_at <= now()
     ORDER BY priority, scheduled_at, id LIMIT $3 FOR UPDATE SKIP LOCKED
)
UPDATE postrider_internal.river_job j
   SET state = 'running', attempt = j.attempt + 1, attempted_at = now(),
       attempted_by = array_append(
           j.attempted_by[greatest(coalesce(cardinality(j.attempted_by), 0) - 98, 1):], $4::text)
 WHERE j.id = ANY (ARRAY (SELECT id FROM next))
RETURNING j.id, j.attempt, j.max_attempts, j.kind, j.queue, j.priority, j.args, j.metadata,
          j.created_at, j.scheduled_at, j.attempted_at, j.attempted_by
