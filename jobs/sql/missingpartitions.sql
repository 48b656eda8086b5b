-- The partitions of @tables that do not exist, of today and @ahead days ahead, by the database's clock.
SELECT t.name, d.day
  FROM unnest(@tables::text[]) WITH ORDINALITY AS t(name, position), generate_series(0, @ahead::int) AS n,
       LATERAL (SELECT (now() AT TIME ZONE 'UTC')::date + n AS day) d
 WHERE to_regclass('postrider_internal.' || t.name || to_char(d.day, '_YYYYMMDD')) IS NULL
 ORDER BY position, n
