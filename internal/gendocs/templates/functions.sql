-- The functions of the SQL contract, their comments, and the role that may call them.
SELECT p.proname AS name, coalesce(obj_description(p.oid), '') AS comment,
       replace(replace(regexp_replace(pg_get_function_arguments(p.oid), '::[a-z ]+', '', 'g'),
           'timestamp with time zone', 'timestamptz'), 'DEFAULT', 'default') AS arguments,
       pg_get_function_result(p.oid) AS returns,
       coalesce((SELECT string_agg(g.grantee::regrole::text, ', ') FROM aclexplode(p.proacl) g
                  WHERE g.grantee::regrole::text IN ('postrider_reader', 'postrider_publisher', 'postrider_consumer',
                                                'postrider_operator')),
                'all') AS role
  FROM pg_proc p
 WHERE p.pronamespace = 'postrider'::regnamespace
 ORDER BY 1;
