-- Counts deliveries on hold by what they wait for. Those without a batch are counted up to @limit.
SELECT h.delivery_hold AS name, sum(held.count)::bigint AS count
  FROM (SELECT subscription_id, count(*)
          FROM (SELECT subscription_id FROM postrider_internal.deliveries WHERE hold IS NOT NULL LIMIT @limit) few
         GROUP BY 1
         UNION ALL
        SELECT subscription_id, count(*)
          FROM (SELECT subscription_id FROM postrider_internal.held_available LIMIT @limit) few
         GROUP BY 1
         UNION ALL
        SELECT subscription_id, sum(members) FROM postrider_internal.batches WHERE hold IS NOT NULL GROUP BY 1) held
  JOIN postrider_internal.subscription_holds h ON h.subscription_id = held.subscription_id
 GROUP BY 1
 ORDER BY 1
