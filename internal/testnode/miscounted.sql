WITH all_deliveries AS (
    SELECT id, subscription_id, attempts FROM postrider_internal.deliveries
    UNION ALL SELECT id, subscription_id, attempts FROM postrider_internal.delivery_history
), requests AS (
    SELECT delivery_id AS id, number FROM postrider_internal.delivery_attempts WHERE NOT late
        AND delivery_id IS NOT NULL
    UNION ALL
    SELECT m.delivery_id, a.number FROM postrider_internal.delivery_attempts a
      JOIN postrider_internal.batch_members m ON m.batch_id = a.batch_id AND a.number <= coalesce(m.left_after,
          a.number) WHERE NOT a.late
), made AS (
    SELECT id, count(*) AS n, count(DISTINCT number) AS numbers, max(number) AS last FROM requests GROUP BY 1
)
SELECT count(*) FROM all_deliveries
  JOIN postrider_internal.event_subscriptions s ON s.id = all_deliveries.subscription_id
  JOIN postrider_internal.retry_policies p ON p.name = s.retry_policy
  LEFT JOIN made ON made.id = all_deliveries.id
 WHERE coalesce(made.n, 0) <> all_deliveries.attempts OR made.n <> made.numbers OR made.n <> made.last
    OR all_deliveries.attempts > coalesce((s.settings #>> '{retryPolicy,maxDeliveryAttempts}')::integer,
       (p.settings #>> '{maxDeliveryAttempts,default}')::integer)
