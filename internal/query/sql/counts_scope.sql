-- Returns the current step, and the ids of topics and event subscriptions whose counts are read: topic 0 for all. A
-- name that was used again has several ids.
SELECT date_bin(make_interval(mins => @step), now(), 'epoch') AS last,
       coalesce(CASE WHEN @subscription::text IS NOT NULL THEN of_name.topics
                     WHEN @topic::text IS NOT NULL
                     THEN (SELECT array_agg(id) FROM postrider_internal.topics WHERE name = @topic)
                     ELSE '{0}' END, '{}') AS topics,
       coalesce(of_name.subscriptions, '{}') AS subscriptions
  FROM (SELECT array_agg(s.topic_id) AS topics, array_agg(s.id) AS subscriptions
          FROM postrider_internal.event_subscriptions s
          JOIN postrider_internal.topics t ON t.id = s.topic_id
         WHERE s.name = @subscription AND (@topic::text IS NULL OR t.name = @topic)) of_name
