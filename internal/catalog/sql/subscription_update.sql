-- Signing secrets that exist are kept while deliveries are signed.
UPDATE postrider_internal.event_subscriptions
   SET settings = json_strip_nulls(@settings), secrets_sealed = @secrets, endpoint_base_url = @endpoint_base_url,
       endpoint_hash = @endpoint_hash, event_delivery_schema = @schema, retry_policy = @policy,
       expiration_time_utc = @expiration,
       signing_sealed = CASE WHEN @signing::bytea IS NOT NULL THEN coalesce(signing_sealed, @signing::bytea) END,
       endpoint_validation = @validation, provisioning_state = @provisioning, handshake_id = @handshake
 WHERE id = @id
