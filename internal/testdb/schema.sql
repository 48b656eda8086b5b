-- A number that is another one after each change of the schema and after ANALYZE.
SELECT (SELECT sum(xmin::text::bigint) + count(*) + sum(reltuples)::bigint FROM pg_class)
     + (SELECT sum(xmin::text::bigint) + count(*) FROM pg_attribute)
     + (SELECT sum(xmin::text::bigint) + count(*) FROM pg_attrdef)
     + (SELECT sum(xmin::text::bigint) + count(*) FROM pg_constraint)
     + (SELECT sum(xmin::text::bigint) + count(*) FROM pg_trigger)
     + (SELECT sum(xmin::text::bigint) + count(*) FROM pg_proc)
     + (SELECT sum(xmin::text::bigint) + count(*) FROM pg_namespace)
     + (SELECT coalesce(sum(xmin::text::bigint), 0) + count(*) FROM pg_statistic)
