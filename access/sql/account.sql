-- Reads what is needed to check a password for the name $1 from the address $2: one row, with id 0 if there is no such
-- user. An address is familiar for $3 after the last sign-in.
SELECT coalesce(u.id, 0), coalesce(u.name, ''), coalesce(u.password_hash, ''), coalesce(u.role, ''),
       u.disabled_at IS NOT NULL, p.place IS NOT NULL,
       CASE WHEN p.place IS NULL THEN u.locked_until ELSE p.locked_until END, now()
  FROM (SELECT) AS one
  LEFT JOIN postrider_internal.users u ON u.name = $1
  LEFT JOIN postrider_internal.sign_in_places p
         ON p.user_id = u.id AND p.place = $2 AND p.last_sign_in_at > now() - $3::interval
