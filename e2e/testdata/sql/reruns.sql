SELECT coalesce(array_agg(s.name || '/' || e.event_id), '{}')
  FROM postrider_internal.delivery_history h
  JOIN postrider_internal.event_subscriptions s ON s.id = h.subscription_id
  JOIN postrider_internal.events e ON e.id = h.event_uuid AND e.day = h.event_day
  LEFT JOIN postrider_internal.batches b ON b.id = h.batch_id
 WHERE h.reruns > 0 OR b.reruns > 0
