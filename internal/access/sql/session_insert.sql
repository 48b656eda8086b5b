-- Inserts a session that ends after $5 at the latest.
INSERT INTO postrider_internal.sessions AS s (token_hash, user_id, expires_at, address, user_agent)
VALUES ($1, $2, now() + $5::interval, nullif($3::text, ''), nullif(left($4::text, 300), ''))
RETURNING s.created_at, s.last_seen_at, postrider_internal.session_ends(s), coalesce(s.address, ''),
          coalesce(s.user_agent, '')
