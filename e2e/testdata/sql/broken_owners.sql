WITH live AS MATERIALIZED (
    SELECT id, kind, (args ->> 'd')::bigint AS delivery_id, (args ->> 'b')::bigint AS batch_id,
           (args ->> 's')::bigint AS subscription_id, (args ->> 'route')::bigint AS route_id
      FROM postrider_internal.river_job WHERE finalized_at IS NULL
), of_delivery AS (
    SELECT delivery_id, count(*) AS n, min(id) AS id FROM live WHERE kind IN ('deliver', 'lock') GROUP BY 1
), of_batch AS (
    SELECT batch_id, count(*) AS n, min(id) AS id FROM live WHERE kind = 'batch' AND batch_id IS NOT NULL GROUP BY 1
), of_route AS (
    SELECT route_id, count(*) AS n, min(id) AS id FROM live WHERE kind = 'route' GROUP BY 1
), cutters AS (
    SELECT DISTINCT subscription_id FROM live WHERE kind = 'batch' AND batch_id IS NULL
), pending AS (
    SELECT CASE WHEN d.batch_id IS NOT NULL THEN (b.id IS NOT NULL)::int ELSE 0 END + coalesce(j.n,
        0) + (d.hold IS NOT NULL)::int + (d.available_at IS NOT NULL)::int
         + (d.job_id IS NULL AND d.batch_id IS NULL AND d.hold IS NULL AND NOT d.pulled
             AND p.subscription_id IS NOT NULL)::int
             AS owners,
           j.n IS NOT NULL AND j.id IS DISTINCT FROM d.job_id AS strange
      FROM postrider_internal.deliveries d
      LEFT JOIN of_delivery j ON j.delivery_id = d.id
      LEFT JOIN postrider_internal.batches b ON b.id = d.batch_id AND b.state = 'pending'
      LEFT JOIN cutters p ON p.subscription_id = d.subscription_id
)
SELECT (SELECT count(*) FROM pending WHERE owners <> 1 OR strange)
     + (SELECT count(*) FROM of_delivery j LEFT JOIN postrider_internal.deliveries d ON d.id = j.delivery_id
         WHERE d.id IS NULL)
     + (SELECT count(*) FROM postrider_internal.batches b LEFT JOIN of_batch j ON j.batch_id = b.id
         WHERE b.state = 'pending' AND (coalesce(j.n, 0) + (b.hold IS NOT NULL)::int <> 1 OR j.n IS NOT NULL
             AND j.id <> b.job_id))
     + (SELECT count(*) FROM of_batch j LEFT JOIN postrider_internal.batches b ON b.id = j.batch_id
         AND b.state = 'pending' WHERE b.id IS NULL)
     + (SELECT count(*) FROM postrider_internal.routes r LEFT JOIN of_route j ON j.route_id = r.id
         WHERE j.n IS DISTINCT FROM 1 OR j.id <> r.job_id)
     + (SELECT count(*) FROM of_route j LEFT JOIN postrider_internal.routes r ON r.id = j.route_id WHERE r.id IS NULL)
