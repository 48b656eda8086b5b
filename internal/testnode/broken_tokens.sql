WITH live AS (
    SELECT id, kind, (args ->> 'd')::bigint AS delivery_id, (args ->> 'b')::bigint AS batch_id,
           (args ->> 's')::bigint AS subscription_id FROM postrider_internal.river_job
     WHERE queue IN ('deliveries', 'locks') AND kind IN ('deliver', 'batch', 'lock')
       AND state IN ('available', 'scheduled', 'retryable', 'running')
), owners AS (
    SELECT d.id, (SELECT count(*) FROM live WHERE kind <> 'batch' AND delivery_id = d.id)
         + (d.hold IS NOT NULL)::int + (d.available_at IS NOT NULL)::int
         + (SELECT count(*) FROM postrider_internal.batches b WHERE b.id = d.batch_id AND b.state = 'pending')
         + (d.job_id IS NULL AND d.batch_id IS NULL AND d.hold IS NULL AND NOT d.pulled
             AND EXISTS (SELECT FROM live WHERE kind = 'batch' AND batch_id IS NULL
                 AND subscription_id = d.subscription_id))::int AS n
      FROM postrider_internal.deliveries d
)
SELECT (SELECT count(*) FROM owners WHERE n <> 1)
     + (SELECT count(*) FROM live WHERE kind <> 'batch' AND NOT EXISTS (SELECT FROM postrider_internal.deliveries d
         WHERE d.id = live.delivery_id AND d.job_id = live.id))
     + (SELECT count(*) FROM live WHERE batch_id IS NOT NULL AND NOT EXISTS (SELECT FROM postrider_internal.batches b
         WHERE b.id = live.batch_id AND b.job_id = live.id))
     + (SELECT count(*) FROM postrider_internal.batches b
         WHERE (b.state = 'pending')::int <> (SELECT count(*) FROM live
             WHERE batch_id = b.id) + (b.hold IS NOT NULL)::int
            OR b.state = 'pending' AND b.members <> (SELECT count(*) FROM postrider_internal.deliveries d
                WHERE d.batch_id = b.id))
