-- Reads facts about the server and this session. Only a role with pg_read_all_stats sees what sessions of other roles
-- are and do; a session of unknown type counts as a client's, which nearly all are.
SELECT current_setting('server_version_num')::int AS version_number, current_setting('server_version') AS version,
       current_database()::text AS database, current_user::text AS role, clock_timestamp() AS clock,
       getdatabaseencoding()::text AS encoding,
       (SELECT datcollversion <> pg_database_collation_actual_version(oid) IS TRUE FROM pg_database
         WHERE datname = current_database()) AS collation_changed,
       (SELECT count(*) FROM pg_stat_activity
         WHERE coalesce(backend_type, 'client backend') = 'client backend' AND datid IS NOT NULL)::int AS connections,
       (SELECT count(*) FROM pg_stat_activity
         WHERE application_name = 'postrider' AND datname = current_database())::int AS own_connections,
       pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') AS sees_all, r.rolsuper AS superuser,
       r.rolcreaterole AS creates_roles,
       ARRAY (SELECT l.rolname::text FROM pg_roles l
               WHERE l.rolcanlogin AND NOT l.rolsuper AND pg_has_role(l.oid, 'pg_read_all_stats', 'USAGE')
                 AND EXISTS (SELECT FROM pg_roles g WHERE g.rolname = 'postrider_reader'
                                AND pg_has_role(l.oid, g.oid, 'USAGE'))
                 AND EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_stat_statements')
               ORDER BY 1) AS statement_readers
  FROM pg_roles r WHERE r.rolname = current_user
