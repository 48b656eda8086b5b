-- The first @most dead letters of a selection. result is what a redelivery to its own event subscription would report
-- now; NULL = nothing prevents it.
SELECT i.position, i.dead_letter_id, i.delivery_id, l.topic, l.subscription, l.event_id, l.event_type, l.subject,
       l.reason, NULL AS state, NULL AS hold,
       CASE WHEN l.id IS NULL THEN 'missing'
            ELSE postrider_internal.redelivery_problem(octet_length(l.body), l.schema, l.redelivered_at, NULL, s)
        END AS result
  FROM postrider_internal.selection_items i
  LEFT JOIN postrider_internal.dead_letters l ON l.id = i.dead_letter_id
  LEFT JOIN postrider_internal.event_subscriptions s ON s.id = l.subscription_id
 WHERE i.selection_id = @selection AND i.position <= @most::int
