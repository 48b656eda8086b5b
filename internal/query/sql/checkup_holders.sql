-- Lists what keeps vacuum from removing dead rows. A transaction of less than a minute is usual. Names are those that
-- clients set; the statements are not read, because they may contain secrets.
SELECT 'transaction' AS kind,
       format('%s, process %s of role %s, %s', coalesce(nullif(application_name, ''), backend_type), pid,
              coalesce(usename, '-'), coalesce(state, '-')) AS name,
       clock_timestamp() - xact_start AS age,
       coalesce(greatest(age(backend_xid), age(backend_xmin)), 0)::bigint AS transactions,
       0::bigint AS kept_bytes, coalesce(state LIKE 'idle in transaction%', false) AS idle
  FROM pg_stat_activity
 WHERE xact_start < clock_timestamp() - interval '1 minute' AND pid <> pg_backend_pid()
   AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL OR state LIKE 'idle in transaction%')
   AND backend_type <> 'autovacuum worker'
 UNION ALL
SELECT 'prepared', format('%s of role %s', gid, owner), clock_timestamp() - prepared, age(transaction)::bigint, 0, true
  FROM pg_prepared_xacts
 WHERE prepared < clock_timestamp() - interval '1 minute'
 UNION ALL
SELECT 'slot', slot_name, interval '0', greatest(coalesce(age(xmin), 0), coalesce(age(catalog_xmin), 0))::bigint,
       CASE WHEN pg_is_in_recovery() THEN 0
            ELSE coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint END,
       NOT active
  FROM pg_replication_slots
