-- Reads whole dead letters. A WHERE clause on l follows. The rows of deleted topics and event subscriptions stay.
SELECT l.id, l.dead_lettered_at, l.topic, l.subscription, t.kind = 'namespace' AS namespace, s.event_delivery_schema,
       l.endpoint_base_url, l.state, l.reason, l.attempts, l.last_outcome, l.last_status, l.last_error,
       l.first_attempt_at,
       l.last_attempt_at, l.time_to_live_since, l.published_at, l.event_time, l.event_uuid AS system_id, l.event_id,
       l.event_type, l.subject, nullif(l.source, '') AS source, l.data_version, l.schema, l.retry_policy, l.delivery_id,
       l.imported_from, l.imported_index,
       l.redelivered_from, l.redelivered_at, l.redelivery_id, l.resolved_at, l.resolved_by, l.resolved_note,
       l.export_state, l.exported_at, l.export_location, l.body
  FROM postrider_internal.dead_letters l
  JOIN postrider_internal.event_subscriptions s ON s.id = l.subscription_id
  JOIN postrider_internal.topics t ON t.id = l.topic_id
