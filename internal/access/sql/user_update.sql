-- Changes the role of a user, disables or enables them, and sets the password unless $4 is empty.
UPDATE postrider_internal.users
   SET role = $2, changed_at = now(), disabled_at = CASE WHEN $3 THEN coalesce(disabled_at, now()) END,
       query = coalesce($5, query), password_hash = coalesce(nullif($4::text, ''), password_hash)
 WHERE id = $1
