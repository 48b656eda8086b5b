-- Inserts new jobs for the pending batches of one step (@limit rows after id @after) that have no hold and no live
-- job. It returns the last id of the step, 0 after the last step, and the number of repairs. The rules are those of
-- repairdeliveries.sql.
WITH step AS MATERIALIZED (
    SELECT id, subscription_id, job_id, hold, created_at, last_attempt_at
      FROM postrider_internal.batches WHERE state = 'pending' AND id > @after ORDER BY id LIMIT @limit
), broken AS MATERIALIZED (
    SELECT b.id, b.job_id FROM step b
     WHERE b.hold IS NULL AND greatest(b.created_at, b.last_attempt_at) < now() - interval '60 seconds'
       AND (SELECT true FROM postrider_internal.river_job j
             WHERE j.id = b.job_id
               AND (j.kind <> 'batch' OR j.finalized_at IS NULL AND j.args ->> 'b' = b.id::text)) IS NULL
       AND (SELECT true FROM postrider_internal.event_subscriptions s
             WHERE s.id = b.subscription_id AND s.deleted_at IS NOT NULL AND s.drained_at IS NULL) IS NULL
), ended AS (
    DELETE FROM postrider_internal.river_job j USING broken
     WHERE j.id = ANY (ARRAY (SELECT job_id FROM broken)) AND j.id = broken.job_id
       AND j.args ->> 'b' = broken.id::text AND j.finalized_at IS NOT NULL
    RETURNING j.id, j.args
), free AS MATERIALIZED (
    SELECT b.id, b.subscription_id, b.attempts, greatest(now(), b.next_attempt_at) AS due,
           coalesce((ended.args ->> 'r')::int, 0) + 1 AS reruns
      FROM postrider_internal.batches b
      JOIN broken ON broken.id = b.id
      LEFT JOIN ended ON ended.id = broken.job_id
     WHERE b.id = ANY (ARRAY (SELECT id FROM broken)) AND b.job_id IS NOT DISTINCT FROM broken.job_id
       AND b.hold IS NULL AND b.state = 'pending'
     ORDER BY b.id FOR UPDATE OF b SKIP LOCKED
), again AS MATERIALIZED (
    SELECT free.*, nextval('postrider_internal.river_job_id_seq') AS job_id FROM free
), followed AS (
    UPDATE postrider_internal.batches b SET job_id = again.job_id, reruns = b.reruns + 1
      FROM again WHERE b.id = again.id
), inserted AS (
    INSERT INTO postrider_internal.new_jobs
    SELECT j.*
      FROM again a, postrider_internal.attempt_job(
           a.job_id, a.due, a.subscription_id, batch => a.id, number => a.attempts + 1, reruns => a.reruns) j
)
SELECT coalesce(max(id), 0), (SELECT count(*) FROM again) FROM step
