-- What is wrong with the rights of the login role that runs this: one row for each problem. $1: the role is one of
-- ours, so that it has no rights but those of postrider_reader.
WITH me AS (SELECT * FROM pg_roles WHERE rolname = current_user)
SELECT problem FROM (
    SELECT 1 AS n, 'has the attribute ' || attribute AS problem
      FROM me CROSS JOIN LATERAL (VALUES ('SUPERUSER', rolsuper), ('CREATEROLE', rolcreaterole),
          ('CREATEDB', rolcreatedb), ('REPLICATION', rolreplication), ('BYPASSRLS', rolbypassrls)) a(attribute, has)
     WHERE has
    UNION ALL
    SELECT 2, 'is a member of ' || r.rolname FROM me JOIN pg_roles r ON r.oid <> me.oid
     WHERE NOT me.rolsuper AND pg_has_role(me.oid, r.oid, 'MEMBER')
       AND CASE WHEN $1::boolean THEN r.rolname <> 'postrider_reader'
           ELSE r.rolname ~ '^pg_'
             OR r.rolname IN ('postrider_operator', 'postrider_publisher', 'postrider_consumer') END
    UNION ALL
    SELECT 3, 'has no CONNECTION LIMIT 1: its queries can end each other' FROM me WHERE rolconnlimit <> 1
    UNION ALL
    SELECT 4, 'has rights on schema postrider_internal' FROM me
     WHERE NOT me.rolsuper AND has_schema_privilege('postrider_internal', 'USAGE')
    UNION ALL
    SELECT 5, 'owns objects or has been granted rights of its own' FROM me
     WHERE EXISTS (SELECT FROM pg_shdepend WHERE refclassid = 'pg_authid'::regclass AND refobjid = me.oid
         AND classid <> 'pg_auth_members'::regclass AND (deptype = 'o' OR $1))
    UNION ALL
    SELECT 6, 'may not read the views of schema postrider' FROM me
     WHERE NOT has_table_privilege('postrider.dead_letters', 'SELECT')
    UNION ALL
    SELECT 7, format('has no right TEMPORARY: GRANT TEMPORARY ON DATABASE %I TO postrider_reader', current_database())
     WHERE NOT has_database_privilege(current_database(), 'TEMPORARY')
) AS problems ORDER BY n, problem
