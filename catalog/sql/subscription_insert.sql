-- Inserts an event subscription.
INSERT INTO postrider_internal.event_subscriptions (topic_id, name, endpoint_sealed, endpoint_base_url, endpoint_hash,
       endpoint_kind, event_delivery_schema, retry_policy, max_delivery_attempts, event_time_to_live_in_minutes, filter,
       dead_letter_destination, max_events_per_batch, preferred_batch_size_in_kilobytes, max_concurrent_deliveries,
       delivery_headers_sealed, behavior, honor_retry_after, probation_action, retry_transport_errors, labels,
       expiration_time_utc, signing_sealed, endpoint_validation, provisioning_state, handshake_id, connection,
       connection_sealed)
VALUES (@topic_id, @name, @endpoint_sealed, @endpoint_base_url, @endpoint_hash,
        @endpoint_kind, @schema, @policy, @attempts, @ttl, @filter,
        CASE WHEN @dead_letter::text <> '' THEN jsonb_strip_nulls(jsonb_build_object(
             'endpointType', @dead_letter::text, 'properties', @dead_letter_properties::jsonb)) END,
        @batch_events, @batch_kilobytes, @concurrent,
        @headers, coalesce(nullif(@behavior, ''), 'safe'), @honor_retry_after, @probation_action,
        @retry_transport_errors, @labels, @expiration, @signing, @validation, @provisioning, @handshake, @connection,
        @connection_sealed)
