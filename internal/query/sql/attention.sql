-- Lists the event subscriptions that are on hold, wait for a rate limit or a closed endpoint, or have a delivery that
-- is pending since @late, the largest backlogs first.
WITH rates AS MATERIALIZED (
    SELECT r.subscription_id, r.closed_until, r.drains_at, r.drains_too_late,
           least(10000,
                 (SELECT count(*) FROM (SELECT FROM postrider_internal.deliveries d
                                         WHERE d.subscription_id = r.subscription_id AND d.hold IS NOT NULL
                                         LIMIT 10000) single)
                 + (SELECT coalesce(sum(b.members), 0) FROM postrider_internal.batches b
                     WHERE b.subscription_id = r.subscription_id AND b.hold IS NOT NULL))::integer AS waiting
      FROM postrider.delivery_rates r
      JOIN postrider_internal.subscription_holds h ON h.subscription_id = r.subscription_id
     WHERE h.delivery_hold = 'rate_limited'
), backlogs AS MATERIALIZED (
    SELECT subscription_id, pending_deliveries, oldest_pending_since, oldest_delivery_id FROM postrider.backlogs
)
SELECT v.topic, v.subscription, v.hold, v.hold_cause, v.hold_since, v.hold_until, coalesce(v.probing, false) AS probing,
       coalesce(b.pending_deliveries, 0) AS pending, b.oldest_pending_since, b.oldest_delivery_id AS oldest_id,
       coalesce(r.waiting, 0) AS waiting, r.closed_until, r.drains_at, coalesce(r.drains_too_late, false) AS too_late,
       CASE WHEN v.hold = 'not_validated'
            THEN (SELECT h.message FROM postrider.handshakes h
                   WHERE h.current AND h.topic = v.topic AND h.subscription = v.subscription LIMIT 1) END AS validation
  FROM postrider.event_subscriptions v
  LEFT JOIN backlogs b ON b.subscription_id = v.subscription_id
  LEFT JOIN rates r ON r.subscription_id = v.subscription_id
 WHERE v.hold IS NOT NULL OR r.waiting > 0 OR b.oldest_pending_since < @late
 ORDER BY pending DESC, v.hold_since DESC NULLS LAST, v.topic, v.subscription
 LIMIT @limit
