-- Counts deliveries on hold by hold. Those without a batch are counted up to @limit.
SELECT hold AS name, sum(count)::bigint AS count
  FROM (SELECT hold, count(*)
          FROM (SELECT hold FROM postrider_internal.deliveries WHERE hold IS NOT NULL LIMIT @limit) few
         GROUP BY 1
         UNION ALL
        SELECT hold, sum(members) FROM postrider_internal.batches WHERE hold IS NOT NULL GROUP BY 1) held
 GROUP BY 1
 ORDER BY 1
