-- Reports whether a topic and an event subscription of it exist or were deleted; '' for the topic is any.
SELECT EXISTS (SELECT FROM postrider_internal.topics WHERE name = $1) AS topic,
       EXISTS (SELECT FROM postrider_internal.event_subscriptions s
                 JOIN postrider_internal.topics t ON t.id = s.topic_id
                WHERE s.name = $2 AND $1 IN ('', t.name)) AS subscription
