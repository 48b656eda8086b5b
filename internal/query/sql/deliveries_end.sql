-- Returns the delivery at which the search for a page ends: the first one of those that are @search rows further along
-- each index; no row if there are fewer.
SELECT d.event_uuid AS system_id, d.id AS delivery_id
  FROM unnest(CASE WHEN @by_subscription THEN @subscriptions::bigint[] ELSE '{0}' END) AS one(id)
 CROSS JOIN LATERAL (
       SELECT d.event_uuid, d.id
         FROM postrider_internal.all_deliveries d -- deliveries_where.sql
        ORDER BY CASE WHEN @timed AND @backwards THEN d.event_uuid END, CASE WHEN @backwards THEN d.id END,
                 CASE WHEN @timed THEN d.event_uuid END DESC, d.id DESC
       OFFSET @search LIMIT 1) d
 ORDER BY CASE WHEN @timed AND @backwards THEN d.event_uuid END, CASE WHEN @backwards THEN d.id END,
          CASE WHEN @timed THEN d.event_uuid END DESC, d.id DESC
 LIMIT 1
