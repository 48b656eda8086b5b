-- Returns the ids of the pending deliveries that the filter of an operation matches, in order, up to @limit.
SELECT d.id
  FROM unnest(CASE WHEN @by_subscription THEN @subscriptions::bigint[] ELSE '{0}' END) AS one(id)
 CROSS JOIN LATERAL (
       SELECT d.id
         FROM (SELECT *, 'pending' AS state, batch_id AS open_batch_id
                 FROM postrider_internal.deliveries) d -- deliveries_matching.sql
        ORDER BY d.id
        LIMIT @limit) d
 ORDER BY d.id
 LIMIT @limit
