-- Lists the locks of an event subscription that end first.
SELECT delivery_id, event_id, system_id, consumer, delivery_count, received_at, locked_until
  FROM postrider.locks
 WHERE subscription_id = @id
 ORDER BY locked_until, delivery_id LIMIT 50
