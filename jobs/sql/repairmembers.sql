-- Gives separate jobs to up to $1 deliveries whose batch has ended without them, or does not exist.
WITH orphans AS MATERIALIZED (
    SELECT d.id FROM postrider_internal.deliveries d
     WHERE d.batch_id IS NOT NULL AND greatest(d.owed_since, d.last_attempt_at) < now() - interval '60 seconds'
       AND NOT EXISTS (SELECT FROM postrider_internal.batches b WHERE b.id = d.batch_id AND b.state = 'pending')
     LIMIT $1
), free AS MATERIALIZED (
    SELECT d.id, d.subscription_id, d.attempts, greatest(now(), d.next_attempt_at) AS due,
           nextval('postrider_internal.river_job_id_seq') AS job_id
      FROM postrider_internal.deliveries d
     WHERE d.id = ANY (ARRAY (SELECT id FROM orphans)) AND d.batch_id IS NOT NULL
     ORDER BY d.id FOR UPDATE SKIP LOCKED
), followed AS (
    UPDATE postrider_internal.deliveries d SET batch_id = NULL, job_id = free.job_id, reruns = d.reruns + 1
      FROM free WHERE d.id = free.id
), inserted AS (
    INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT job_id, postrider_internal.job_state(due),
           jsonb_build_object('d', id, 's', subscription_id, 'n', attempts + 1, 'r', 1),
           'deliver', 'deliveries', 1, 1000, due
      FROM free
)
SELECT 0::bigint, count(*) FROM free
