-- Makes up to @limit held deliveries of an event subscription available to its consumer, and members of its held
-- batches, which end. What only concerns requests to an endpoint is reset. If the event subscription is on hold by now
-- it does nothing, except for deliveries of at least the age @age: they are ended next.
WITH allowed AS MATERIALIZED (
    SELECT 1 WHERE @age::interval IS NOT NULL OR NOT EXISTS (
           SELECT FROM postrider_internal.event_subscription_states
            WHERE subscription_id = @subscription AND hold IS NOT NULL)
), held_batches AS MATERIALIZED (
    SELECT id FROM postrider_internal.batches
     WHERE EXISTS (SELECT FROM allowed) AND @age::interval IS NULL AND subscription_id = @subscription
       AND hold IS NOT NULL
     ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED
), ended AS (
    UPDATE postrider_internal.batches b
       SET state = 'canceled', finished_at = now(), next_attempt_at = NULL, hold = NULL
      FROM held_batches h WHERE b.id = h.id
), members AS MATERIALIZED (
    SELECT id, batch_id, attempts FROM postrider_internal.deliveries
     WHERE batch_id = ANY (ARRAY (SELECT id FROM held_batches)) FOR UPDATE
), left_batch AS (
    INSERT INTO postrider_internal.left_members (batch_id, delivery_id, left_at, left_after, left_reason)
    SELECT batch_id, id, now(), attempts, 'canceled' FROM members
), held AS MATERIALIZED (
    SELECT id FROM postrider_internal.deliveries
     WHERE EXISTS (SELECT FROM allowed) AND subscription_id = @subscription AND hold IS NOT NULL
       AND (@age::interval IS NULL OR time_to_live_since <= now() - @age::interval)
     ORDER BY time_to_live_since, id LIMIT @limit FOR UPDATE SKIP LOCKED
), changed AS (
    UPDATE postrider_internal.deliveries d
       SET hold = NULL, last_hold = coalesce(d.hold, d.last_hold), batch_id = NULL, pulled = true, held_reruns = 0,
           not_before = NULL
     WHERE d.id = ANY (ARRAY (SELECT id FROM held UNION ALL SELECT id FROM members))
    RETURNING d.id
)
SELECT count(*) FROM changed
