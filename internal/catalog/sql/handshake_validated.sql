-- Validates the event subscription whose endpoint and schema are those of handshake $1. A handshake without an event
-- subscription only counts if validationUrl was opened ($6): else the client that has begun it stores it, and may
-- require a version.
UPDATE postrider_internal.event_subscriptions s SET provisioning_state = 'Succeeded', handshake_id = h.id
  FROM postrider_internal.topics t, postrider_internal.handshakes h
 WHERE h.id = $1 AND (h.subscription_id IS NOT NULL OR $6)
   AND t.id = s.topic_id AND t.name = $2 AND t.deleted_at IS NULL
   AND s.name = $3 AND s.deleted_at IS NULL AND s.endpoint_hash = $4
   AND (s.event_delivery_schema = 'CloudEventSchemaV1_0') = ($5::text = 'CloudEventSchemaV1_0')
   AND s.provisioning_state <> 'Succeeded'
RETURNING s.id
