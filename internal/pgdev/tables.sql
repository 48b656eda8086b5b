-- The tables of a schema, with the columns that can be inserted, in the order of their creation. Partitions follow
-- their parents.
SELECT c.relname, c.oid::regclass::text, (
           SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
            WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped AND attgenerated = '')
  FROM pg_class c
 WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
   AND c.relnamespace = ANY (SELECT oid FROM pg_namespace WHERE nspname IN ('postrider', 'postrider_internal'))
 ORDER BY c.oid
