-- Counts the deliveries that consumers of an event subscription may receive now or later, and those that they have
-- locked, up to 10,000 each.
SELECT (SELECT count(*)
          FROM (SELECT FROM postrider_internal.deliveries
                 WHERE subscription_id = @id AND available_at <= now()
                 LIMIT 10000) few)::int AS available,
       (SELECT count(*)
          FROM (SELECT FROM postrider_internal.deliveries
                 WHERE subscription_id = @id AND available_at > now()
                 LIMIT 10000) few)::int AS delayed,
       (SELECT count(*)
          FROM (SELECT FROM postrider.locks WHERE subscription_id = @id LIMIT 10000) few)::int AS locked
