-- Lists the event subscriptions on hold, the newest hold first, with the number of their deliveries on hold.
SELECT v.topic, v.subscription, v.endpoint_base_url, v.hold, v.hold_cause, v.hold_since, v.hold_until,
       coalesce(v.probing, false) AS probing,
       (SELECT count(*) FROM (SELECT FROM postrider_internal.deliveries d
                               WHERE d.subscription_id = v.subscription_id AND d.hold IS NOT NULL LIMIT 10000) few)
       + (SELECT count(*) FROM (SELECT FROM postrider_internal.held_available a
                                 WHERE a.subscription_id = v.subscription_id LIMIT 10000) few)
       + (SELECT coalesce(sum(b.members), 0)::bigint FROM postrider_internal.batches b
           WHERE b.subscription_id = v.subscription_id AND b.hold IS NOT NULL) AS held_deliveries,
       CASE WHEN v.hold = 'not_validated'
            THEN (SELECT h.message FROM postrider.handshakes h
                   WHERE h.current AND h.topic = v.topic AND h.subscription = v.subscription LIMIT 1) END AS validation
  FROM (SELECT topic, subscription, subscription_id, endpoint_base_url, hold, hold_cause, hold_since, hold_until,
               probing
          FROM postrider.event_subscriptions
         WHERE hold IS NOT NULL
         ORDER BY hold_since DESC NULLS LAST, topic, subscription
         LIMIT @limit) v
 ORDER BY v.hold_since DESC NULLS LAST, v.topic, v.subscription
