-- Deletes up to $1 idempotency keys that have expired.
DELETE FROM postrider_internal.idempotency_keys WHERE ctid = ANY (ARRAY (
    SELECT ctid FROM postrider_internal.idempotency_keys
     WHERE expires_at <= now() ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED))
