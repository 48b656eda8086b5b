-- Signing secrets that exist are kept while deliveries are signed.
UPDATE postrider_internal.event_subscriptions
   SET endpoint_sealed = @endpoint_sealed, endpoint_base_url = @endpoint_base_url, endpoint_hash = @endpoint_hash,
       endpoint_kind = @endpoint_kind, event_delivery_schema = @schema, retry_policy = @policy,
       max_delivery_attempts = @attempts, event_time_to_live_in_minutes = @ttl, filter = @filter,
       dead_letter_destination = CASE WHEN @dead_letter::text <> '' THEN jsonb_strip_nulls(jsonb_build_object(
           'endpointType', @dead_letter::text, 'properties', @dead_letter_properties::jsonb)) END,
       max_events_per_batch = @batch_events, preferred_batch_size_in_kilobytes = @batch_kilobytes,
       max_concurrent_deliveries = @concurrent, delivery_headers_sealed = @headers,
       behavior = coalesce(nullif(@behavior, ''), 'safe'), honor_retry_after = @honor_retry_after,
       probation_action = @probation_action, retry_transport_errors = @retry_transport_errors, labels = @labels,
       expiration_time_utc = @expiration,
       signing_sealed = CASE WHEN @signing::bytea IS NOT NULL THEN coalesce(signing_sealed, @signing::bytea) END,
       endpoint_validation = @validation, provisioning_state = @provisioning, handshake_id = @handshake,
       connection = @connection, connection_sealed = @connection_sealed
 WHERE id = @id
