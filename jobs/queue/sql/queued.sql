-- Counts the queued deliveries of each event subscription: those whose job is ready or running, members of such
-- batches, and open ones. An event subscription may have several rows.
WITH queued AS MATERIALIZED (
    SELECT id, kind, args FROM postrider_internal.river_job WHERE state = 'available' AND queue = 'deliveries'
     UNION ALL
    SELECT id, kind, args FROM postrider_internal.river_job WHERE state = 'running' AND queue = 'deliveries'
)
SELECT (args ->> 's')::bigint AS subscription_id, count(*) AS jobs FROM queued WHERE kind = 'deliver' GROUP BY 1
UNION ALL
SELECT b.subscription_id, sum(b.members)::bigint
  FROM queued q JOIN postrider_internal.batches b ON b.job_id = q.id WHERE q.kind = 'batch' GROUP BY 1
UNION ALL
SELECT subscription_id, count(*) FROM postrider_internal.deliveries WHERE open GROUP BY 1
