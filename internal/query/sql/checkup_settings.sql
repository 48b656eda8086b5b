-- Lists the settings of this session that matter to postrider. This transaction has its own statement_timeout.
SELECT name, CASE name WHEN 'statement_timeout' THEN reset_val ELSE setting END AS setting
  FROM pg_settings
 WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum', 'track_counts', 'max_connections',
                'superuser_reserved_connections', 'reserved_connections', 'synchronous_standby_names',
                'statement_timeout', 'transaction_timeout', 'idle_session_timeout', 'session_replication_role')
