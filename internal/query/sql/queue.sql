-- Counts the deliveries that consumers of an event subscription may receive now or later, and those that they have
-- locked, up to 10,000 each. While the event subscription is on hold, they may receive none.
WITH open AS MATERIALIZED (
    SELECT NOT EXISTS (SELECT FROM postrider_internal.event_subscription_states
                        WHERE subscription_id = @id AND hold IS NOT NULL) AS receives
)
SELECT (SELECT count(*)
          FROM (SELECT FROM postrider_internal.deliveries
                 WHERE subscription_id = @id AND available_at <= now() AND (SELECT receives FROM open)
                 LIMIT 10000) few)::int AS available,
       (SELECT count(*)
          FROM (SELECT FROM postrider_internal.deliveries
                 WHERE subscription_id = @id AND available_at > now() AND (SELECT receives FROM open)
                 LIMIT 10000) few)::int AS delayed,
       (SELECT count(*)
          FROM (SELECT FROM postrider.locks WHERE subscription_id = @id LIMIT 10000) few)::int AS locked
