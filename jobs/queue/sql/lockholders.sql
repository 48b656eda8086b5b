-- Names the sessions that have rows of locks, those with the oldest transactions first.
SELECT coalesce(string_agg(holder, ', '), 'a transaction that has ended since') FROM (
    SELECT format('process %s (%s, role %s)', a.pid, coalesce(nullif(a.application_name, ''), 'unnamed'), a.usename)
           AS holder
      FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
     WHERE l.relation = 'postrider_internal.locks'::regclass
       AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
     GROUP BY a.pid, a.application_name, a.usename, a.xact_start ORDER BY a.xact_start LIMIT 3) h
