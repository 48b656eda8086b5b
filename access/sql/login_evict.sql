-- Deletes pending logins until $1 are left: each time the oldest of the sender that has most. A sender is an IPv4
-- address, or the /48 of an IPv6 address, which is one site.
WITH pending AS (
    SELECT key_hash, created_at,
           CASE WHEN address LIKE '%:%' AND address NOT LIKE '::ffff:%'
                THEN network(set_masklen(split_part(address, '%', 1)::inet, 48))::text
                ELSE coalesce(address, '') END AS sender
      FROM postrider_internal.login_requests WHERE state = 'pending' AND expires_at > now()
), ranked AS (
    SELECT key_hash, created_at,
           row_number() OVER (PARTITION BY sender ORDER BY created_at DESC, key_hash DESC) AS of_sender
      FROM pending
)
DELETE FROM postrider_internal.login_requests WHERE state = 'pending' AND key_hash IN (
    SELECT key_hash FROM ranked ORDER BY of_sender DESC, created_at, key_hash
     LIMIT greatest((SELECT count(*) FROM pending) - $1, 0))
