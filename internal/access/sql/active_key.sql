-- Finds the active API key with the hash $1, its scope and owner, and whether its use was recorded over a minute ago.
SELECT k.name, postrider_internal.key_scope(k.scope, u.role), k.topic, k.subscription, u.name,
       postrider_internal.may_query(coalesce(u.query, k.query), postrider_internal.key_scope(k.scope, u.role)),
       coalesce(k.last_used_at < now() - interval '1 minute', true)
  FROM postrider_internal.api_keys k
  LEFT JOIN postrider_internal.users u ON u.id = k.user_id
 WHERE k.key_hash = $1 AND k.revoked_at IS NULL AND (k.expires_at > now()) IS NOT FALSE AND u.disabled_at IS NULL
