-- Returns the time, the table of today's attempts, and the number of its blocks; NULL if there is no such table.
SELECT now() AS now, name,
       pg_relation_size(to_regclass('postrider_internal.' || name)) / current_setting('block_size')::bigint AS blocks
  FROM (SELECT 'delivery_attempts_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD') AS name) today
