-- The views of the SQL contract, their columns and their comments.
SELECT c.relname AS name, coalesce(obj_description(c.oid), '') AS comment,
       (SELECT json_agg(json_build_object(
                   'name', a.attname, 'comment', coalesce(col_description(c.oid, a.attnum), ''), 'type',
                   replace(format_type(a.atttypid, a.atttypmod), 'timestamp with time zone', 'timestamptz'))
               ORDER BY a.attnum)
          FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0) AS columns
  FROM pg_class c
 WHERE c.relnamespace = 'postrider'::regnamespace AND c.relkind = 'v'
 ORDER BY 1;
