-- The first thing that a query uses but must not. $1: its functions, $2: its types, $3: functions with a second
-- argument of more than 64 bytes, $4: with two of more than 1,024, $5: with a second of more than 8. pg_depend has all
-- objects that PostgreSQL did not come with (16384 and up).
WITH used AS (
    SELECT d.refclassid AS class, d.refobjid AS id FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid
     WHERE p.proname = 'postrider_query' AND p.pronamespace = pg_my_temp_schema()
       AND d.classid = 'pg_proc'::regclass AND d.refobjid >= 16384
), ours AS (SELECT oid AS id FROM pg_namespace WHERE nspname = 'postrider'
), functions AS (
    SELECT unnest($1::oid[]) AS id UNION SELECT id FROM used WHERE class = 'pg_proc'::regclass
     UNION SELECT o.oprcode FROM used u JOIN pg_operator o ON o.oid = u.id WHERE u.class = 'pg_operator'::regclass
), types AS (
    SELECT unnest($2::oid[]) AS id UNION SELECT id FROM used WHERE class = 'pg_type'::regclass
)
SELECT 'calls ' || p.oid::regprocedure
  FROM functions f JOIN pg_proc p ON p.oid = f.id
 WHERE NOT (p.pronamespace = 'pg_catalog'::regnamespace AND p.oid < 16384
       OR p.pronamespace IN (SELECT id FROM ours))
    OR p.provolatile = 'v' AND NOT (p.pronamespace = 'pg_catalog'::regnamespace
       AND p.proname ~ '^(random|random_normal|clock_timestamp|timeofday|gen_random_uuid|uuidv[47]|pg_.*_size)$')
    -- PostgreSQL does not cancel functions of XML, normalize(), is_normalized(), and these ts_ functions. Those that
    -- begin with pg_input_ find a type by its name, unseen by this check. pg_get_object_address() locks the object.
    OR p.proname ~ 'xml|^(is_normalized|normalize|pg_input_.*|pg_get_object_address)$'
    OR p.proname ~ '^ts_(headline|rank|rank_cd|rewrite)$'
    OR 'cstring'::regtype = ANY (p.proargtypes) OR p.prorettype IN ('xml'::regtype, 'xml[]'::regtype)
    OR 'xml'::regtype = ANY (p.proargtypes)
 UNION ALL
SELECT 'calls ' || p.oid::regprocedure || ' with a second argument that is not a constant or parameter of at most 64 '
       'bytes'
  FROM unnest($3::oid[]) s(id) JOIN pg_proc p ON p.oid = s.id
 WHERE p.pronamespace = 'pg_catalog'::regnamespace
   AND (p.proname ~ 'like$|^(replace|position|strpos|split_part|string_to_(array|table))$'
     OR p.proname ~ '^(like|notlike|like_escape|to_(char|date|number|timestamp))$'
     OR p.oid = 'jsonb_delete(jsonb,text[])'::regprocedure)
 UNION ALL
SELECT 'calls ' || p.oid::regprocedure || ' with a second argument that is not a constant or parameter of at most 8 '
       'bytes'
  FROM unnest($5::oid[]) s(id) JOIN pg_proc p ON p.oid = s.id
 WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname ~ '^(translate|[blr]trim)$'
 UNION ALL
SELECT 'calls ' || p.oid::regprocedure || ' with no argument that is a constant or parameter of at most 1024 bytes'
  FROM unnest($4::oid[]) s(id) JOIN pg_proc p ON p.oid = s.id
 WHERE p.proname IN ('arraycontains', 'arraycontained', 'arrayoverlap', 'jsonb_contains', 'jsonb_contained',
       'jsonb_exists_any', 'jsonb_exists_all')
 UNION ALL
SELECT 'uses type ' || t.oid::regtype
  FROM types f JOIN pg_type t ON t.oid = f.id
 WHERE t.oid IN ('xml'::regtype, 'xml[]'::regtype, 'path'::regtype, 'path[]'::regtype, 'polygon'::regtype,
       'polygon[]'::regtype, 'jsonpath'::regtype, 'jsonpath[]'::regtype)
    OR t.typtype = 'm' OR t.oid >= 16384 AND t.typnamespace NOT IN (SELECT id FROM ours)
 UNION ALL
SELECT 'reads ' || CASE c.relkind WHEN 'v' THEN 'view ' WHEN 'f' THEN 'foreign table ' ELSE 'table ' END
       || c.oid::regclass || CASE WHEN c.relkind IN ('r', 'p') THEN ', which has row security' ELSE '' END
  FROM used u JOIN pg_class c ON c.oid = u.id
 WHERE u.class = 'pg_class'::regclass AND c.relnamespace NOT IN (SELECT id FROM ours)
   AND (c.relkind NOT IN ('r', 'p', 'm') OR c.relrowsecurity)
 ORDER BY 1
 LIMIT 1
