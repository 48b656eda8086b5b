WITH live AS MATERIALIZED (
    SELECT id, kind, (args ->> 'd')::bigint AS delivery_id, (args ->> 'b')::bigint AS batch_id,
           (args ->> 's')::bigint AS subscription_id
      FROM postrider_internal.river_job WHERE kind IN ('deliver', 'batch', 'lock') AND finalized_at IS NULL
), of_delivery AS (
    SELECT delivery_id, count(*) AS n, min(id) AS id FROM live WHERE kind <> 'batch' GROUP BY 1
), of_batch AS (
    SELECT batch_id, count(*) AS n, min(id) AS id FROM live WHERE kind = 'batch' AND batch_id IS NOT NULL GROUP BY 1
), cutters AS (
    SELECT DISTINCT subscription_id FROM live WHERE kind = 'batch' AND batch_id IS NULL
), members AS (
    SELECT batch_id, count(*) AS n FROM postrider_internal.deliveries WHERE batch_id IS NOT NULL GROUP BY 1
), owners AS (
    SELECT coalesce(j.n, 0) + (b.id IS NOT NULL)::int + (d.hold IS NOT NULL)::int + (d.available_at IS NOT NULL)::int
           + (d.open AND c.subscription_id IS NOT NULL)::int AS n,
           j.id IS DISTINCT FROM d.job_id AS strange
      FROM postrider_internal.deliveries d
      LEFT JOIN of_delivery j ON j.delivery_id = d.id
      LEFT JOIN postrider_internal.batches b ON b.id = d.batch_id AND b.state = 'pending'
      LEFT JOIN cutters c ON c.subscription_id = d.subscription_id
)
SELECT (SELECT count(*) FROM owners WHERE n <> 1 OR strange)
     + (SELECT count(*) FROM of_delivery j LEFT JOIN postrider_internal.deliveries d ON d.id = j.delivery_id
         WHERE d.id IS NULL)
     + (SELECT count(*) FROM postrider_internal.batches b
          LEFT JOIN of_batch j ON j.batch_id = b.id
          LEFT JOIN members m ON m.batch_id = b.id
         WHERE b.state = 'pending'
           AND (coalesce(j.n, 0) + (b.hold IS NOT NULL)::int <> 1 OR j.id IS DISTINCT FROM b.job_id
                OR m.n IS DISTINCT FROM b.members))
     + (SELECT count(*) FROM of_batch j LEFT JOIN postrider_internal.batches b ON b.id = j.batch_id
         AND b.state = 'pending' WHERE b.id IS NULL)
