-- Lists the partitioned tables with the number of days after today that have a partition, without a gap.
WITH parts AS (
    SELECT parent.relname AS parent, pg_get_expr(c.relpartbound, c.oid) = 'DEFAULT' AS is_default,
           CASE WHEN c.relname ~ '_[0-9]{8}$' THEN to_date(right(c.relname, 8), 'YYYYMMDD') END AS day
      FROM pg_class parent
      LEFT JOIN pg_inherits i ON i.inhparent = parent.oid
      LEFT JOIN pg_class c ON c.oid = i.inhrelid
     WHERE parent.relnamespace = to_regnamespace('postrider_internal') AND parent.relkind = 'p'
), today AS (
    SELECT (now() AT TIME ZONE 'UTC')::date AS day
)
SELECT p.parent::text AS "table",
       (SELECT coalesce(min(n), 31) - 1 FROM generate_series(1, 30) n
         WHERE NOT EXISTS (SELECT FROM parts q WHERE q.parent = p.parent AND q.day = t.day + n))::int AS ahead,
       bool_or(p.day = t.day) IS TRUE AS today, bool_or(p.is_default) IS TRUE AS "default",
       min(p.day)::timestamptz AS oldest
  FROM parts p
 CROSS JOIN today t
 GROUP BY p.parent, t.day
 ORDER BY 1
