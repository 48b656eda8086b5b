-- The partitions of @table of days before @day. If a node died, one may be detached, or its detach may have begun.
SELECT c.relname::text AS name, to_date(right(c.relname, 8), 'YYYYMMDD') AS day, i.inhrelid IS NOT NULL AS attached,
       coalesce(i.inhdetachpending, false) AS pending
  FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
 WHERE c.relnamespace = 'postrider_internal'::regnamespace AND c.relkind = 'r'
   AND c.relname ~ ('^' || @table || '_[0-9]{8}$') AND to_date(right(c.relname, 8), 'YYYYMMDD') < @day
 ORDER BY 4 DESC, 2
