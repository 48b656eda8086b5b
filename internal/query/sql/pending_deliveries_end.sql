-- Returns the pending delivery at which a step of an operation ends, as deliveries_end.sql does.
SELECT d.event_uuid AS system_id, d.id AS delivery_id
  FROM unnest(CASE WHEN @by_subscription THEN @subscriptions::bigint[] ELSE '{0}' END) AS one(id)
 CROSS JOIN LATERAL (
       SELECT d.event_uuid, d.id
         FROM postrider_internal.deliveries d -- deliveries_where.sql
        ORDER BY d.id
       OFFSET @search LIMIT 1) d
 ORDER BY d.id
 LIMIT 1
