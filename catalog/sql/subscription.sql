-- Event subscriptions with their topic's retention and their hold. The caller appends a condition on s and t.
SELECT s.id, s.topic_id, t.name AS topic, s.name, s.endpoint_sealed, s.endpoint_base_url, s.endpoint_hash,
       s.endpoint_kind, s.event_delivery_schema, s.retry_policy, s.max_delivery_attempts,
       s.event_time_to_live_in_minutes, s.filter,
       coalesce(s.dead_letter_destination ->> 'endpointType', '') AS dead_letter,
       s.dead_letter_destination -> 'properties' AS dead_letter_properties, s.provisioning_state,
       s.max_events_per_batch, s.preferred_batch_size_in_kilobytes, s.max_concurrent_deliveries,
       s.delivery_headers_sealed, s.behavior, s.honor_retry_after, s.probation_action, s.retry_transport_errors,
       s.labels, s.expiration_time_utc, coalesce(t.event_retention_in_days, 0) AS event_retention_in_days,
       s.signing_sealed, s.endpoint_validation, coalesce(s.handshake_id, 0) AS handshake_id,
       s.connection, s.connection_sealed,
       coalesce(h.hold, '') AS hold, h.since AS hold_since, coalesce(h.cause, '') AS hold_cause, h.until AS hold_until,
       h.probing, h.time_to_live_stopped AS ttl_stopped, h.resuming,
       s.version, s.created_at, s.updated_at, s.deleted_at
  FROM postrider_internal.event_subscriptions s
  JOIN postrider_internal.topics t ON t.id = s.topic_id
  JOIN postrider_internal.subscription_holds h ON h.subscription_id = s.id
