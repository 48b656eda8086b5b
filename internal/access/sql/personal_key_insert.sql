-- Inserts a personal key of the user $7, which expires after $8 days. A disabled user gets none.
INSERT INTO postrider_internal.api_keys (name, key_hash, hint, scope, user_id, machine, created_by, expires_at)
SELECT $1, $2, $3, postrider_internal.key_scope(coalesce($4, 'admin'), u.role), u.id, $5, $6,
       now() + make_interval(days => $8)
  FROM postrider_internal.users u
 WHERE u.name = $7 AND u.disabled_at IS NULL
   FOR SHARE OF u
