-- Returns the ids that the names of a filter stand for, NULL for a name that is not given. An event subscription that
-- was deleted and created again has several. @event is the publisher's id of an event.
SELECT CASE WHEN @topic::text IS NOT NULL
            THEN ARRAY (SELECT id FROM postrider_internal.topics WHERE name = @topic) END AS topics,
       CASE WHEN num_nonnulls(@topic, @subscription::text) > 0
            THEN ARRAY (SELECT s.id
                          FROM postrider_internal.event_subscriptions s
                          JOIN postrider_internal.topics t ON t.id = s.topic_id
                         WHERE (@topic IS NULL OR t.name = @topic) AND (@subscription IS NULL OR s.name = @subscription)
                         LIMIT @most) END AS subscriptions,
       CASE WHEN @event::text IS NOT NULL
            THEN ARRAY (SELECT id FROM postrider_internal.events WHERE event_id = @event LIMIT 1000) END AS events
