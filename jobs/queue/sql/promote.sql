-- Makes up to @limit due jobs available. The surplus goes on hold, up to @hold_limit jobs in one statement: of each of
-- @subscriptions the jobs above its one of @capacities, with its one of @holds (NULL: admission), and of others those
-- above @others. It omits the event subscriptions @without. For each event subscription it returns how many jobs were
-- due and how many fitted, and the deliveries of those.
--
-- The condition is the exact beginning of an index of scheduled jobs (queue, priority, scheduled_at): with a million
-- scheduled jobs, finding that none is due takes 0.05 ms. River's own scheduler runs on one node, every 5 s, and scans
-- (108 ms).
--
-- A job whose delivery or batch another transaction keeps locked stays as it is: the jobs of the others do not wait.
-- A job to hold that no delivery or batch has is removed. LATERAL with LIMIT or a lock, and OFFSET 0, keep each lookup
-- an index scan, also without statistics: a join would be quadratic, and a hashed subquery reads the whole table.
--
-- The capacity counts deliveries: a batch takes as much as it has members, and fits if any is left. Only the arguments
-- of known kinds are read: a newer version's jobs may have others.
WITH due AS MATERIALIZED (
    SELECT id, kind, args,
           CASE WHEN kind IN ('deliver', 'batch') THEN (args ->> 's')::bigint END AS subscription_id,
           CASE WHEN kind = 'deliver' THEN (args ->> 'd')::bigint END AS delivery_id,
           CASE WHEN kind = 'batch' THEN (args ->> 'b')::bigint END AS batch_id
      FROM postrider_internal.river_job
     WHERE state = 'scheduled' AND queue = 'deliveries' AND priority = 1 AND scheduled_at <= now()
       AND coalesce(args ->> 's', '') <> ALL (@without::text[])
     ORDER BY scheduled_at, id LIMIT @limit FOR UPDATE SKIP LOCKED
), weighed AS MATERIALIZED (
    SELECT due.*, coalesce(b.members, 1) AS members, due.kind <> 'deliver' AND b.id IS NULL AS free
      FROM due
      LEFT JOIN LATERAL (
           SELECT * FROM postrider_internal.batches b
            WHERE b.id = due.batch_id AND b.job_id = due.id LIMIT 1) b ON true
), fitted AS MATERIALIZED (
    SELECT w.*, coalesce(r.hold, 'admission') AS hold,
           w.free OR sum(members) OVER (PARTITION BY w.subscription_id ORDER BY w.id) - members
                     < coalesce(r.jobs, @others) AS fits
      FROM weighed w LEFT JOIN unnest(@subscriptions::bigint[], @capacities::int[], @holds::text[])
                            AS r(subscription_id, jobs, hold)
                            ON r.subscription_id = w.subscription_id
), placed AS MATERIALIZED (
    SELECT fitted.*, NOT fits AND row_number() OVER (PARTITION BY fits ORDER BY id) <= @hold_limit AS parks FROM fitted
), locked AS MATERIALIZED (
    SELECT p.id FROM placed p
     CROSS JOIN LATERAL (
           SELECT FROM postrider_internal.deliveries d
            WHERE p.parks AND d.id = p.delivery_id AND d.job_id = p.id FOR UPDATE SKIP LOCKED) d
     UNION ALL
    SELECT p.id FROM placed p
     CROSS JOIN LATERAL (
           SELECT FROM postrider_internal.batches b
            WHERE p.parks AND b.id = p.batch_id AND b.job_id = p.id FOR UPDATE SKIP LOCKED) b
), moved AS (
    UPDATE postrider_internal.river_job j SET state = 'available', scheduled_at = least(j.scheduled_at, now())
      FROM placed WHERE j.id = placed.id AND placed.fits
), gone AS (
    DELETE FROM postrider_internal.river_job j USING placed p
     WHERE j.id = p.id AND p.parks AND (
           p.id IN (SELECT id FROM locked)
           OR NOT EXISTS (SELECT FROM postrider_internal.deliveries d
                           WHERE d.id = p.delivery_id AND d.job_id = p.id OFFSET 0)
              AND NOT EXISTS (SELECT FROM postrider_internal.batches b
                               WHERE b.id = p.batch_id AND b.job_id = p.id OFFSET 0))
    RETURNING p.id, p.delivery_id, p.batch_id, p.hold, coalesce((p.args ->> 'r')::int, 0) AS reruns
), parked AS (
    UPDATE postrider_internal.deliveries d SET job_id = NULL, hold = gone.hold, held_reruns = gone.reruns
      FROM gone WHERE d.id = gone.delivery_id AND d.job_id = gone.id
), parked_batches AS (
    UPDATE postrider_internal.batches b SET job_id = NULL, hold = gone.hold, held_reruns = gone.reruns
      FROM gone WHERE b.id = gone.batch_id AND b.job_id = gone.id
)
SELECT coalesce(subscription_id, 0), count(*), count(*) FILTER (WHERE fits),
       coalesce(sum(members) FILTER (WHERE fits), 0)
  FROM placed WHERE NOT parks OR id IN (SELECT id FROM gone) GROUP BY 1
