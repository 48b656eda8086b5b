-- The roles of the SQL contract, and whether each may read every view.
SELECT r.rolname AS name, bool_and(has_table_privilege(r.oid, c.oid, 'SELECT')) AS reads
  FROM pg_roles r JOIN pg_class c ON c.relnamespace = 'postrider'::regnamespace AND c.relkind = 'v'
 WHERE r.rolname IN ('postrider_reader', 'postrider_publisher', 'postrider_consumer',
                     'postrider_operator')
 GROUP BY 1 ORDER BY 1 DESC;
