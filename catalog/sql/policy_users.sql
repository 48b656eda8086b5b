-- The first event subscriptions that use retry policy $1, and how many there are. With $2 only those that take batches:
-- the rule of policy.ResolveBatch.
SELECT t.name || '/' || s.name, count(*) OVER ()
  FROM postrider_internal.event_subscriptions s
  JOIN postrider_internal.topics t ON t.id = s.topic_id
 WHERE s.retry_policy = $1 AND s.deleted_at IS NULL
   AND (NOT $2 OR s.max_events_per_batch > 1
               OR s.max_events_per_batch IS NULL AND s.preferred_batch_size_in_kilobytes IS NOT NULL)
 ORDER BY t.name, s.name LIMIT 10
