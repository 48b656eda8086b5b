-- Lists the deleted event subscriptions that are not drained, except those of the last minute without deliveries.
SELECT id
  FROM postrider_internal.event_subscriptions s
 WHERE deleted_at IS NOT NULL AND drained_at IS NULL
   AND (deleted_at < now() - interval '1 minute'
        OR EXISTS (SELECT FROM postrider_internal.deliveries d WHERE d.subscription_id = s.id))
 ORDER BY id
