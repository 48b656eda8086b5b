-- One handshake. The caller appends a condition.
SELECT id, purpose, topic, subscription, settings, secrets_sealed, endpoint_base_url, schema, code_sealed, callback,
       public_url, state, tries, message, callback_expires_at, created_at, concluded_at, now() AS read_at,
       endpoint_hash
  FROM postrider_internal.handshakes
