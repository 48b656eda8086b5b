-- The first @most deliveries of a selection. Of many, ended ones are not searched: each of them would be, in every day.
SELECT i.position, i.dead_letter_id, i.delivery_id, t.name AS topic, s.name AS subscription, e.event_id, e.event_type,
       e.subject, d.reason, d.state, h.delivery_hold AS hold,
       CASE WHEN d.id IS NULL AND @most::int < 1000 THEN 'missing'
            WHEN d.state IS DISTINCT FROM 'pending' THEN 'ended' END AS result
  FROM postrider_internal.selection_items i
  LEFT JOIN LATERAL (
       SELECT * FROM postrider_internal.all_deliveries o WHERE o.id = i.delivery_id AND o.state = 'pending'
        UNION ALL
       SELECT * FROM postrider_internal.all_deliveries h
        WHERE h.id = i.delivery_id AND h.state <> 'pending' AND @most < 1000) d ON true
  LEFT JOIN postrider_internal.event_subscriptions s ON s.id = d.subscription_id
  LEFT JOIN postrider_internal.topics t ON t.id = d.topic_id
  LEFT JOIN postrider_internal.events e ON e.id = d.event_uuid AND e.day = d.event_day
  LEFT JOIN postrider_internal.batches b ON b.id = d.open_batch_id
  LEFT JOIN postrider_internal.subscription_holds h
         ON h.subscription_id = d.subscription_id AND (d.hold IS NOT NULL OR b.hold IS NOT NULL)
 WHERE i.selection_id = @selection AND i.position <= @most::int
