-- Lists the event subscriptions that are on hold, have a delivery that waits for a rate limit or a closed endpoint, or
-- have one that is pending since @late, the largest backlogs first. attention_rates.sql has how their rates are
-- limited.
WITH backlogs AS MATERIALIZED (
    SELECT subscription_id, pending_deliveries, oldest_pending_since, oldest_delivery_id FROM postrider.backlogs
)
SELECT t.name AS topic, s.name AS subscription, h.hold, h.cause AS hold_cause, h.since AS hold_since,
       h.until AS hold_until, coalesce(h.probing, false) AS probing, coalesce(b.pending_deliveries, 0) AS pending,
       b.oldest_pending_since, b.oldest_delivery_id AS oldest_id, h.delivery_hold = 'rate_limited' AS rate_limited,
       0 AS waiting, NULL::timestamptz AS closed_until, NULL::timestamptz AS drains_at, false AS too_late,
       CASE WHEN h.hold = 'not_validated'
            THEN (SELECT n.message FROM postrider.handshakes n
                   WHERE n.current AND n.topic = t.name AND n.subscription = s.name LIMIT 1) END AS validation
  FROM postrider_internal.event_subscriptions s
  JOIN postrider_internal.topics t ON t.id = s.topic_id
  JOIN postrider_internal.subscription_holds h ON h.subscription_id = s.id
  LEFT JOIN backlogs b ON b.subscription_id = s.id
 WHERE s.deleted_at IS NULL
   AND (h.hold IS NOT NULL OR b.oldest_pending_since < @late
        OR h.delivery_hold = 'rate_limited' AND (
               EXISTS (SELECT FROM postrider_internal.deliveries d
                        WHERE d.subscription_id = s.id AND d.hold IS NOT NULL)
               OR EXISTS (SELECT FROM postrider_internal.batches d
                           WHERE d.subscription_id = s.id AND d.hold IS NOT NULL)))
 ORDER BY pending DESC, h.since DESC NULLS LAST, t.name, s.name
 LIMIT @limit
