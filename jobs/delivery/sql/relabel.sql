-- Gives the hold rate_limited to what an earlier hold of an event subscription, such as a pause, has left: to its
-- batches, and to the next @limit deliveries on hold behind the position @since, @id. Returns the position of the last
-- of these; no row if none is left, or if the event subscription is on hold again.
WITH allowed AS MATERIALIZED (
    SELECT 1 WHERE NOT EXISTS (
           SELECT FROM postrider_internal.event_subscription_states
            WHERE subscription_id = @subscription AND hold IS NOT NULL)
       AND NOT EXISTS (SELECT FROM postrider_internal.probations WHERE probation_key = @probation AND since IS NOT NULL)
), held AS MATERIALIZED (
    SELECT id, time_to_live_since, hold FROM postrider_internal.deliveries
     WHERE EXISTS (SELECT FROM allowed) AND subscription_id = @subscription AND hold IS NOT NULL
       AND (time_to_live_since, id) > (@since::timestamptz, @id::bigint)
     ORDER BY time_to_live_since, id LIMIT @limit
), deliveries AS (
    UPDATE postrider_internal.deliveries SET hold = 'rate_limited'
     WHERE id IN (SELECT d.id FROM held h JOIN postrider_internal.deliveries d ON d.id = h.id
                   WHERE h.hold <> 'rate_limited' AND d.hold IS NOT NULL FOR UPDATE OF d SKIP LOCKED)
), batches AS (
    UPDATE postrider_internal.batches SET hold = 'rate_limited'
     WHERE id IN (SELECT id FROM postrider_internal.batches
                   WHERE EXISTS (SELECT FROM allowed) AND subscription_id = @subscription AND hold IS NOT NULL
                     AND hold <> 'rate_limited' FOR UPDATE SKIP LOCKED)
)
SELECT time_to_live_since, id FROM held ORDER BY time_to_live_since DESC, id DESC LIMIT 1
