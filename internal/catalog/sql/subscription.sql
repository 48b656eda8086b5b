-- Event subscriptions with their topic's retention and their hold. The caller appends a condition on s and t.
SELECT s.id, s.topic_id, t.name AS topic, s.name, t.kind AS topic_kind, t.input_schema, s.endpoint_base_url,
       s.endpoint_hash, s.retry_policy AS policy, s.settings, s.secrets_sealed, s.endpoint_validation AS validation,
       s.provisioning_state,
       coalesce(s.handshake_id, 0) AS handshake_id, coalesce(t.event_retention_in_days, 0) AS event_retention_in_days,
       s.signing_sealed, coalesce(h.hold, '') AS reason, h.since, coalesce(h.cause, '') AS cause, h.until, h.probing,
       h.time_to_live_stopped, h.resuming, s.version, s.created_at, s.updated_at, s.deleted_at
  FROM postrider_internal.event_subscriptions s
  JOIN postrider_internal.topics t ON t.id = s.topic_id
  JOIN postrider_internal.subscription_holds h ON h.subscription_id = s.id
