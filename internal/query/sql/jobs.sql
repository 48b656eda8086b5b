-- Lists a page of River's jobs, the newest first, or reads the job @id. The id of a lock is left out: it is half of the
-- lock token.
SELECT j.id, j.kind, j.queue, j.state::text AS state, j.attempt::int AS attempt, j.max_attempts::int AS max_attempts,
       j.created_at, j.scheduled_at, j.attempted_at, coalesce(j.attempted_by, '{}') AS attempted_by,
       (j.args - 'l')::text AS args,
       (SELECT d.id FROM postrider_internal.deliveries d
         WHERE j.kind IN ('deliver', 'lock') AND d.id = (j.args ->> 'd')::bigint) AS delivery_id,
       (SELECT b.id FROM postrider_internal.batches b WHERE b.job_id = j.id) AS batch_id
  FROM postrider_internal.river_job j
 WHERE (@id::bigint IS NULL OR j.id = @id)
   AND (@state::text IS NULL OR j.state::text = @state)
   AND (@kind::text IS NULL OR j.kind = @kind)
   AND (@cursor::bigint IS NULL OR CASE WHEN @backwards THEN j.id > @cursor ELSE j.id < @cursor END)
 ORDER BY CASE WHEN @backwards THEN j.id END, j.id DESC
 LIMIT @limit
