-- What is missing of the roles for SQL users and of their rights: one row for each statement that sets it up, in the
-- order in which they work. by: the role that may run it; '' = an administrator. A role that does not exist has the
-- rights of PUBLIC, whose oid is 0.
WITH RECURSIVE roles AS (
    SELECT role, reads, functions, coalesce(r.oid, 0) AS oid
      FROM (VALUES
          ('postrider_reader', true, '{}'::text[]),
          ('postrider_publisher', false, '{publish,publish_batch,publish_data,publish_row_change}'),
          ('postrider_consumer', false, '{receive,acknowledge,release_locks,reject,renew}'),
          ('postrider_operator', true, '{redeliver,redeliver_event,resolve,reopen,purge,count_dead_letters,'
              'redeliver_all,resolve_all,purge_all,redeliver_events,'
              'count_events,cancel_operation,cancel,retry_now,dead_letter_now,pause,resume,release,test_delivery,'
              'erase_event,erase_subject,acknowledge_problem,resolve_problem,'
              'open_relay_callback}')) v(role, reads, functions)
      LEFT JOIN pg_roles r ON r.rolname = role
), schemas AS (
    SELECT oid, nspname, nspowner::regrole::text AS owner, nspacl FROM pg_namespace
     WHERE nspname IN ('postrider', 'postrider_internal')
), views AS (
    SELECT c.oid, c.oid::regclass::text AS name, s.nspname, s.owner, c.relacl
      FROM pg_class c JOIN schemas s ON s.oid = c.relnamespace WHERE c.relkind = 'v'
), called AS ( -- tables are read with the rights of a view's owner, but functions are called with those of its user
    SELECT d.refobjid AS oid
      FROM views v JOIN pg_rewrite r ON r.ev_class = v.oid
      JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_proc'::regclass
     UNION
    SELECT d.refobjid
      FROM called c JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = c.oid
           AND d.refclassid = 'pg_proc'::regclass
), lacking AS (
    SELECT role, 'USAGE' AS "right", 'SCHEMA ' AS kind, nspname::text AS object, owner
      FROM roles r CROSS JOIN schemas s
     WHERE nspname = 'postrider' AND NOT has_schema_privilege(r.oid, s.oid, 'USAGE')
     UNION ALL
    SELECT role, 'SELECT', '', name, owner
      FROM roles r CROSS JOIN views v
     WHERE reads AND nspname = 'postrider' AND NOT has_table_privilege(r.oid, v.oid, 'SELECT')
     UNION ALL
    SELECT role, 'EXECUTE', 'FUNCTION ', p.oid::regprocedure::text, owner
      FROM roles r CROSS JOIN pg_proc p JOIN schemas s ON s.oid = p.pronamespace
     WHERE (nspname = 'postrider' AND p.proname = ANY (functions) OR reads AND p.oid IN (SELECT oid FROM called))
       AND NOT has_function_privilege(r.oid, p.oid, 'EXECUTE')
), open_to_all AS (
    SELECT 'SCHEMA ' AS kind, nspname::text AS object, owner, nspacl AS acl FROM schemas
     UNION ALL
    SELECT '', name, owner, relacl FROM views WHERE nspname = 'postrider'
), me AS (
    SELECT oid, quote_ident(rolname) AS name, rolsuper, rolcreaterole FROM pg_roles WHERE rolname = current_user
), reader AS (
    SELECT oid FROM roles WHERE role = 'postrider_reader'
)
SELECT problem, statement || ';' AS statement, by
  FROM (
    SELECT 1 AS n, format('role %s does not exist', role) AS problem, 'CREATE ROLE ' || role AS statement, '' AS by
      FROM roles WHERE oid = 0
     UNION ALL
    -- `postrider sql` becomes the reader. From PostgreSQL 16 on, only ADMIN OPTION allows a role to grant it.
    SELECT 2, format('role %s may not become postrider_reader', me.name), 'GRANT postrider_reader TO ' || me.name
           || CASE WHEN me.rolcreaterole AND reader.oid <> 0
                    AND NOT pg_has_role(me.oid, reader.oid, 'MEMBER WITH ADMIN OPTION') THEN ' WITH ADMIN OPTION'
                   ELSE '' END, ''
      FROM me CROSS JOIN reader
     WHERE NOT me.rolsuper AND (reader.oid = 0 OR NOT pg_has_role(me.oid, reader.oid,
           CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END))
     UNION ALL
    -- The check of a user's query creates a temporary function.
    SELECT 3, 'postrider_reader lacks the right TEMPORARY on the database',
           format('GRANT TEMPORARY ON DATABASE %I TO postrider_reader', datname),
           CASE WHEN pg_has_role(me.oid, datdba, 'USAGE') THEN datdba::regrole::text ELSE '' END
      FROM pg_database CROSS JOIN me CROSS JOIN reader
     WHERE datname = current_database() AND NOT has_database_privilege(reader.oid, pg_database.oid, 'TEMPORARY')
     UNION ALL
    SELECT 4, 'PUBLIC has rights on ' || string_agg(object, ', ' ORDER BY object),
           format('REVOKE ALL ON %s%s FROM PUBLIC', kind, string_agg(object, ', ' ORDER BY object)), owner
      FROM open_to_all WHERE 0 IN (SELECT grantee FROM aclexplode(acl)) GROUP BY owner, kind
     UNION ALL
    SELECT 5, format('%s lacks the right %s on %s', role, "right",
               array_to_string((array_agg(object ORDER BY object))[:3], ', ')
               || CASE WHEN count(*) > 3 THEN format(' and %s more', count(*) - 3) ELSE '' END),
           format('GRANT %s ON %s%s TO %s', "right", kind, string_agg(object, ', ' ORDER BY object), role), owner
      FROM lacking GROUP BY role, "right", kind, owner
  ) missing
 ORDER BY n, statement
