-- Inserts new jobs for the deliveries of one step (@limit rows after id @after) that have no hold, no live job, and no
-- pending batch. It returns the last id of the step, 0 after the last step, and the number of repairs.
--
-- Every transaction changes a delivery and its job together, and one statement sees one snapshot: what does not match
-- is inconsistent. A delivery that another transaction changes is left to the next pass. A job that River finalized
-- without an outcome is deleted, or a late result could be recorded with it. Its reruns are kept, so that the delivery
-- ends at some time.
--
-- These are consistent without a job of kind "deliver": available deliveries; open deliveries, if their event
-- subscription takes batches or has a batch cutter; those of a deleted event subscription that are being canceled; and
-- those whose job has another kind: a lock, or one of a newer version during a rolling upgrade.
--
-- Scalar subqueries and arrays instead of joins are always lookups by id: for a join the planner may read a table.
WITH step AS MATERIALIZED (
    SELECT id, subscription_id, job_id, batch_id, hold, available_at, time_to_live_since, last_attempt_at
      FROM postrider_internal.deliveries WHERE id > @after ORDER BY id LIMIT @limit
), cutters AS MATERIALIZED (
    SELECT (args ->> 's')::bigint AS subscription_id FROM postrider_internal.river_job
     WHERE queue = 'deliveries' AND kind = 'batch' AND finalized_at IS NULL AND args -> 'b' IS NULL
), broken AS MATERIALIZED (
    SELECT d.id, d.job_id, d.batch_id FROM step d
     WHERE d.hold IS NULL AND d.available_at IS NULL
       AND (SELECT true FROM postrider_internal.batches b WHERE b.id = d.batch_id AND b.state = 'pending') IS NULL
       AND greatest(d.time_to_live_since, d.last_attempt_at) < now() - interval '60 seconds'
       AND (SELECT true FROM postrider_internal.river_job j
             WHERE j.id = d.job_id
               AND (j.kind <> 'deliver' OR j.finalized_at IS NULL AND j.args ->> 'd' = d.id::text)) IS NULL
       AND (SELECT true FROM postrider_internal.event_subscriptions s
             WHERE s.id = d.subscription_id
               AND (s.deleted_at IS NOT NULL AND s.drained_at IS NULL
                OR d.job_id IS NULL AND d.batch_id IS NULL
                                    AND ((s.settings ->> 'maxEventsPerBatch')::integer > 1
                                         OR s.settings ->> 'maxEventsPerBatch' IS NULL
                                            AND s.settings ->> 'preferredBatchSizeInKilobytes' IS NOT NULL
                                         OR s.id IN (SELECT subscription_id FROM cutters)))) IS NULL
), ended AS (
    DELETE FROM postrider_internal.river_job j USING broken
     WHERE j.id = ANY (ARRAY (SELECT job_id FROM broken)) AND j.id = broken.job_id
       AND j.args ->> 'd' = broken.id::text AND j.finalized_at IS NOT NULL
    RETURNING j.id, j.args
), free AS MATERIALIZED (
    SELECT d.id, d.subscription_id, d.attempts, greatest(now(), d.next_attempt_at) AS due,
           coalesce((ended.args ->> 'r')::int, 0) + 1 AS reruns
      FROM postrider_internal.deliveries d
      JOIN broken ON broken.id = d.id
      LEFT JOIN ended ON ended.id = broken.job_id
     WHERE d.id = ANY (ARRAY (SELECT id FROM broken)) AND d.job_id IS NOT DISTINCT FROM broken.job_id
       AND d.batch_id IS NOT DISTINCT FROM broken.batch_id AND d.hold IS NULL
     ORDER BY d.id FOR UPDATE OF d SKIP LOCKED
), again AS MATERIALIZED (
    SELECT free.*, nextval('postrider_internal.river_job_id_seq') AS job_id FROM free
), followed AS (
    UPDATE postrider_internal.deliveries d SET job_id = again.job_id, batch_id = NULL, reruns = d.reruns + 1
      FROM again WHERE d.id = again.id
), inserted AS (
    INSERT INTO postrider_internal.new_jobs
    SELECT j.*
      FROM again a, postrider_internal.attempt_job(
           a.job_id, a.due, a.subscription_id, delivery => a.id, number => a.attempts + 1, reruns => a.reruns) j
)
SELECT coalesce(max(id), 0), (SELECT count(*) FROM again) FROM step
