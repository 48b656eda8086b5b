-- Returns the ids of the deliveries that a filter matches.
SELECT d.id
  FROM unnest(CASE WHEN @by_subscription THEN @subscriptions::bigint[] ELSE '{0}' END) AS one(id)
 CROSS JOIN LATERAL (
       SELECT d.id FROM postrider_internal.all_deliveries d -- deliveries_matching.sql
        LIMIT @limit) d
 LIMIT @limit
