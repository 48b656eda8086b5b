-- Creates or replaces a query of its owner. No row: the owner has too many queries.
INSERT INTO postrider_internal.queries (name, description, sql, owner, shared, expires_at)
SELECT $1, $2, $3, $4, $5, now() + $6::interval
 WHERE (SELECT count(*) FROM postrider_internal.queries WHERE owner = $4) < $7
    OR EXISTS (SELECT FROM postrider_internal.queries WHERE owner = $4 AND name = $1)
ON CONFLICT (owner, name) DO UPDATE
   SET description = EXCLUDED.description, sql = EXCLUDED.sql, shared = EXCLUDED.shared, changed_at = now()
RETURNING xmax = 0
