-- The partitions of the table $1 of days before $2. If a node died, one may be detached, or its detach
-- may have begun.
SELECT c.relname::text AS name, to_date(right(c.relname, 8), 'YYYYMMDD') AS day, i.inhrelid IS NOT NULL AS attached,
       coalesce(i.inhdetachpending, false) AS pending
  FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
 WHERE c.relnamespace = 'postrider_internal'::regnamespace AND c.relkind = 'r'
   AND c.relname ~ ('^' || $1 || '_[0-9]{8}$') AND to_date(right(c.relname, 8), 'YYYYMMDD') < $2
 ORDER BY 4 DESC, 2
