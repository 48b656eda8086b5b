-- Deletes the locks named $1 of event subscriptions that do not exist any more. A lock that is held stays until the
-- next time.
DELETE FROM postrider_internal.locks l USING (
    SELECT name, key FROM postrider_internal.locks k
     WHERE name = $1 AND NOT EXISTS (SELECT FROM postrider_internal.event_subscriptions s WHERE s.id = k.key)
       FOR UPDATE SKIP LOCKED) gone
 WHERE l.name = gone.name AND l.key = gone.key
