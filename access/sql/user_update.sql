-- Changes the role of a user, disables or enables them, and sets the password unless $4 is empty; a password ends a
-- lock-out.
UPDATE postrider_internal.users
   SET role = $2, changed_at = now(), disabled_at = CASE WHEN $3 THEN coalesce(disabled_at, now()) END,
       password_hash = coalesce(nullif($4::text, ''), password_hash),
       failed_sign_ins = CASE WHEN $4::text = '' THEN failed_sign_ins ELSE 0 END,
       locked_until = CASE WHEN $4::text = '' THEN locked_until END
 WHERE id = $1
