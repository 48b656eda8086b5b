-- Lists the days of the partitioned tables with their sizes, by table, the newest day first.
SELECT left(c.relname, -9)::text AS parent, to_date(right(c.relname, 8), 'YYYYMMDD') AS day,
       pg_total_relation_size(c.oid) AS bytes, c.reltuples::bigint AS rows, i.inhrelid IS NOT NULL AS attached
  FROM pg_class c
  LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
 WHERE c.relnamespace = 'postrider_internal'::regnamespace AND c.relkind = 'r'
   AND c.relname ~ '^(events|delivery_history|delivery_attempts)_[0-9]{8}$'
 ORDER BY 1, 2 DESC
