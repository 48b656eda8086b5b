-- Deletes up to $2 API keys that were revoked or expired before $1.
DELETE FROM postrider_internal.api_keys WHERE id = ANY (ARRAY (
    SELECT id FROM postrider_internal.api_keys WHERE least(revoked_at, expires_at) < $1
     ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED))
