-- Lists the tables without partitions by day with their sizes, the largest first.
SELECT c.relname::text AS name, pg_total_relation_size(c.oid) AS bytes, c.reltuples::bigint AS rows,
       coalesce(u.n_dead_tup, 0) AS dead_rows, greatest(u.last_vacuum, u.last_autovacuum) AS last_vacuum
  FROM pg_class c
  LEFT JOIN pg_stat_user_tables u ON u.relid = c.oid
 WHERE c.relnamespace = 'postrider_internal'::regnamespace AND c.relkind = 'r' AND c.relname !~ '_[0-9]{8}$'
 ORDER BY 2 DESC, 1
