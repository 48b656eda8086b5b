-- Releases the oldest held delivery of @subscriptions, which share @probation, as its probe, and returns whether there
-- was one. A batch is the probe only if no delivery without a batch is held: a probe that fails would use an attempt
-- of all its members.
--
-- The probation's row is the lock: only one node finds it due and without a probe in progress. A probe that ended
-- without a response (it expired, it was canceled, its node died) has no job any more, and the next one is taken.
WITH probation AS MATERIALIZED (
    SELECT probation_key FROM postrider_internal.probations p
     WHERE probation_key = @probation AND since IS NOT NULL AND until <= now()
       AND NOT EXISTS (SELECT FROM postrider_internal.river_job j
                        WHERE j.id = p.probe_job_id AND j.finalized_at IS NULL)
       -- Another node may have claimed since this statement's snapshot, which does not see that node's job.
       AND p.probe_job_id IS NOT DISTINCT FROM (
           SELECT seen.probe_job_id FROM postrider_internal.probations seen WHERE seen.probation_key = @probation)
       FOR UPDATE SKIP LOCKED
), oldest AS MATERIALIZED (
    SELECT d.id FROM probation, unnest(@subscriptions::bigint[]) AS s(id)
     CROSS JOIN LATERAL (
           SELECT d.id, d.time_to_live_since FROM postrider_internal.deliveries d
            WHERE d.subscription_id = s.id AND d.hold IS NOT NULL AND d.next_attempt_at <= now()
            ORDER BY d.time_to_live_since, d.id LIMIT 1) d
     ORDER BY d.time_to_live_since, d.id LIMIT 1
), delivery AS MATERIALIZED (
    SELECT id, subscription_id, attempts, held_reruns, hold FROM postrider_internal.deliveries
     WHERE id = (SELECT id FROM oldest) AND hold IS NOT NULL FOR UPDATE SKIP LOCKED
), batch AS MATERIALIZED (
    SELECT id, subscription_id, attempts, held_reruns, hold FROM postrider_internal.batches
     WHERE id = (SELECT b.id FROM probation, postrider_internal.batches b
                  WHERE NOT EXISTS (SELECT FROM delivery) AND b.subscription_id = ANY (@subscriptions::bigint[])
                    AND b.hold IS NOT NULL AND b.next_attempt_at <= now() ORDER BY b.id LIMIT 1)
       AND hold IS NOT NULL FOR UPDATE SKIP LOCKED
), wave AS MATERIALIZED (
    SELECT p.*, now() AS due, nextval('postrider_internal.river_job_id_seq') AS job_id,
           0 AS permits, true AS exempt
      FROM (SELECT 'd' AS what, * FROM delivery UNION ALL SELECT 'b', * FROM batch) p
), marked AS (
    UPDATE postrider_internal.probations p SET probe_job_id = wave.job_id, updated_at = now()
      FROM wave WHERE p.probation_key = @probation
), -- start.sql
SELECT EXISTS (SELECT FROM wave)
