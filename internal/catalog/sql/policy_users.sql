-- The first event subscriptions that use retry policy $1, and how many there are. With $2 only those that take batches:
-- the rule of policy.ResolveBatch.
SELECT t.name || '/' || s.name AS name, (count(*) OVER ())::int AS count
  FROM postrider_internal.event_subscriptions s
  JOIN postrider_internal.topics t ON t.id = s.topic_id
 WHERE s.retry_policy = $1 AND s.deleted_at IS NULL
   AND (NOT $2 OR (s.settings ->> 'maxEventsPerBatch')::integer > 1
               OR s.settings ->> 'maxEventsPerBatch' IS NULL
                  AND s.settings ->> 'preferredBatchSizeInKilobytes' IS NOT NULL)
 ORDER BY t.name, s.name LIMIT 10
