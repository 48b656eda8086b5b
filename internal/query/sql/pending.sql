-- Counts the pending deliveries of an event subscription, and those of them on hold, up to 10,000 each.
SELECT (SELECT count(*)
          FROM (SELECT FROM postrider_internal.deliveries
                 WHERE subscription_id = @id AND hold IS NOT NULL
                 UNION ALL
                SELECT FROM postrider_internal.held_available WHERE subscription_id = @id
                 LIMIT 10000) few)::int AS held,
       (SELECT count(*)
          FROM (SELECT FROM postrider_internal.deliveries WHERE subscription_id = @id LIMIT 10000) few)::int AS pending
