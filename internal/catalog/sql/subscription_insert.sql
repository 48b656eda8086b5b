-- Inserts an event subscription.
INSERT INTO postrider_internal.event_subscriptions (topic_id, name, settings, secrets_sealed, endpoint_base_url,
       endpoint_hash, event_delivery_schema, retry_policy, expiration_time_utc, signing_sealed, endpoint_validation,
       provisioning_state, handshake_id)
VALUES (@topic_id, @name, json_strip_nulls(@settings), @secrets, @endpoint_base_url,
        @endpoint_hash, @schema, @policy, @expiration, @signing, @validation,
        @provisioning, @handshake)
