-- Reports whether the database knows the key $1, whether events of today have a partition, and how long ago node $2
-- wrote its last heartbeat, NULL without one. Last, whether the database accepts no writes: a session that was opened
-- before the setting changed can still write, but a new one cannot.
SELECT EXISTS (SELECT FROM postrider_internal.encryption_keys WHERE key_id = $1),
       to_regclass('postrider_internal.events_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')) IS NOT NULL,
       (SELECT clock_timestamp() - beat_at FROM postrider_internal.nodes WHERE id = $2),
       pg_is_in_recovery() OR coalesce(
           (SELECT split_part(c, '=', 2) FROM pg_db_role_setting s CROSS JOIN LATERAL unnest(s.setconfig) c
             WHERE s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
               AND s.setrole IN (0, to_regrole(quote_ident(session_user)))
               AND c LIKE 'default_transaction_read_only=%'
             ORDER BY s.setrole <> 0 DESC, s.setdatabase <> 0 DESC LIMIT 1),
           current_setting('default_transaction_read_only'))::boolean
