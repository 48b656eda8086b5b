-- Records that a session was seen, if it has not ended and was last seen longer than $2 ago.
UPDATE postrider_internal.sessions s
   SET last_seen_at = now()
 WHERE token_hash = $1 AND last_seen_at < now() - $2::interval AND postrider_internal.session_ends(s) > now()
RETURNING last_seen_at, postrider_internal.session_ends(s)
