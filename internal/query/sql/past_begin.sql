-- Returns where a redelivery of past events begins, and the filter of its event subscription.
SELECT s.topic_id, p.published_from, p.published_until, p.cursor_at, s.settings -> 'filter'
  FROM postrider_internal.past_events($1, $2, $3, $4) p
  JOIN postrider_internal.event_subscriptions s ON s.id = p.target_id
