-- Finds the session with the hash $1, and whether it was last seen longer than $2 ago.
SELECT u.name, u.role, s.created_at, s.last_seen_at, postrider_internal.session_ends(s), coalesce(s.address, ''),
       coalesce(s.user_agent, ''), s.last_seen_at < now() - $2::interval,
       postrider_internal.may_query(u.query, u.role)
  FROM postrider_internal.sessions s
  JOIN postrider_internal.users u ON u.id = s.user_id
 WHERE s.token_hash = $1 AND postrider_internal.session_ends(s) > now() AND u.disabled_at IS NULL
