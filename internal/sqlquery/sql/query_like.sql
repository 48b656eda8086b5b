-- Finds a name that differs from $1 only in letter case, among the queries of owner $2 and, for a shared query ($3),
-- the shared ones. Other users' private queries do not count: their names are private.
SELECT name FROM postrider_internal.queries
 WHERE lower(name COLLATE "C") = lower($1 COLLATE "C") AND name <> $1 AND (owner = $2 OR shared AND $3)
 LIMIT 1
