-- Lists postrider's tables on which this role lacks a right.
SELECT c.relname::text
  FROM pg_class c
 WHERE c.relnamespace = to_regnamespace('postrider_internal') AND c.relkind IN ('r', 'p') AND NOT c.relispartition
   AND NOT (has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
            AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE'))
 ORDER BY 1
