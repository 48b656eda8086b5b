-- Lists the tables whose rows are inserted and deleted all the time.
SELECT c.relname::text AS name, coalesce(u.n_live_tup, 0) AS rows, coalesce(u.n_dead_tup, 0) AS dead_rows,
       pg_total_relation_size(c.oid) AS bytes, greatest(u.last_vacuum, u.last_autovacuum) AS last_vacuum,
       NOT coalesce(c.reloptions && '{autovacuum_enabled=false,autovacuum_enabled=off}', false) AS autovacuum
  FROM pg_class c
  LEFT JOIN pg_stat_user_tables u ON u.relid = c.oid
 WHERE c.relnamespace = to_regnamespace('postrider_internal')
   AND c.relname IN ('river_job', 'deliveries', 'batches', 'rollup_deltas', 'nodes', 'event_subscription_states',
                     'probations', 'backlog_counts')
 ORDER BY 1
