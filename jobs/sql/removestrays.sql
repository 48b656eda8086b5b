-- Deletes the delivery jobs of one step (@limit rows after id @after) that no delivery names. It returns the last id
-- of the step, 0 after the last step, and the number of jobs. Running jobs are left: each finds that its delivery has
-- ended or has another job.
WITH step AS MATERIALIZED (
    SELECT id, state, created_at,
           CASE WHEN kind = 'deliver' AND finalized_at IS NULL THEN (args ->> 'd')::bigint END AS delivery_id
      FROM postrider_internal.river_job WHERE id > @after ORDER BY id LIMIT @limit
), stray AS MATERIALIZED (
    SELECT step.id FROM step
     WHERE step.delivery_id IS NOT NULL AND step.state <> 'running'
       AND step.created_at < now() - interval '60 seconds'
       AND (SELECT true FROM postrider_internal.deliveries d
             WHERE d.id = step.delivery_id AND d.job_id = step.id) IS NULL
), free AS (
    SELECT j.id FROM postrider_internal.river_job j
     WHERE j.id = ANY (ARRAY (SELECT id FROM stray)) AND j.state <> 'running' AND j.finalized_at IS NULL
     ORDER BY j.id FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM postrider_internal.river_job j USING free WHERE j.id = free.id RETURNING j.id
)
SELECT coalesce(max(id), 0), (SELECT count(*) FROM gone) FROM step
