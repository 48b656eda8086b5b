-- What is wrong with the rights of the login role that runs this: one row for each problem, with the remedy, '' = a new
-- role. $1: the role is one of ours, so that it has no rights but those of postrider_reader.
WITH me AS (
    SELECT r.*, reader.oid AS reader, pg_has_role(r.oid, reader.oid, 'USAGE') AS reads
      FROM pg_roles r LEFT JOIN pg_roles reader ON reader.rolname = 'postrider_reader'
     WHERE r.rolname = current_user
)
SELECT problem, remedy FROM (
    SELECT 1 AS n, 'has the attribute ' || attribute AS problem, '' AS remedy
      FROM me CROSS JOIN LATERAL (VALUES ('SUPERUSER', rolsuper), ('CREATEROLE', rolcreaterole),
          ('CREATEDB', rolcreatedb), ('REPLICATION', rolreplication), ('BYPASSRLS', rolbypassrls)) a(attribute, has)
     WHERE has
    UNION ALL
    SELECT 2, 'is a member of ' || r.rolname, CASE WHEN pg_has_role(me.reader, r.oid, 'MEMBER')
           THEN format('an administrator may run: REVOKE %I FROM postrider_reader;', r.rolname) ELSE '' END
      FROM me JOIN pg_roles r ON r.oid <> me.oid
     WHERE NOT me.rolsuper AND pg_has_role(me.oid, r.oid, 'MEMBER')
       AND CASE WHEN $1::boolean THEN r.rolname <> 'postrider_reader'
           ELSE r.rolname ~ '^pg_'
             OR r.rolname IN ('postrider_operator', 'postrider_publisher', 'postrider_consumer') END
    UNION ALL
    SELECT 3, 'has no CONNECTION LIMIT 1: its queries can end each other', '' FROM me WHERE rolconnlimit <> 1
    UNION ALL
    SELECT 4, 'has rights on schema postrider_internal', '' FROM me
     WHERE NOT me.rolsuper AND has_schema_privilege('postrider_internal', 'USAGE')
    UNION ALL
    SELECT 5, 'owns objects or has been granted rights of its own', '' FROM me
     WHERE EXISTS (SELECT FROM pg_shdepend WHERE refclassid = 'pg_authid'::regclass AND refobjid = me.oid
         AND classid <> 'pg_auth_members'::regclass AND (deptype = 'o' OR $1))
    UNION ALL
    SELECT 6, 'may not read the views of schema postrider',
           CASE WHEN reads THEN 'run `postrider migrate up`' ELSE '' END
      FROM me -- the name of a table is an error without USAGE
     WHERE EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname = 'postrider' AND c.relname = 'dead_letters' AND NOT (has_schema_privilege(n.oid, 'USAGE')
           AND has_table_privilege(c.oid, 'SELECT')))
    UNION ALL
    SELECT 7, 'has no right TEMPORARY', format('the owner of the database may run: GRANT TEMPORARY ON DATABASE %I '
           'TO postrider_reader;', current_database())
     WHERE NOT has_database_privilege(current_database(), 'TEMPORARY')
) AS problems ORDER BY n, problem
