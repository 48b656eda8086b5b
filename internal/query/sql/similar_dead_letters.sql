-- Counts the open dead letters like the one with an id: same event subscription, reason and event type. It checks up to
-- @limit open ones of the event subscription.
SELECT l.topic, l.subscription, l.reason, l.event_type,
       (SELECT count(*)
          FROM (SELECT o.reason, o.event_type
                  FROM postrider_internal.dead_letters o
                 WHERE o.topic = l.topic AND o.subscription = l.subscription AND o.state = 'open'
                 LIMIT @limit) few
         WHERE few.reason = l.reason AND few.event_type = l.event_type)::integer AS count
  FROM postrider_internal.dead_letters l
 WHERE l.id = @id
