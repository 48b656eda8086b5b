-- Counts River's jobs by state, among the first @limit.
SELECT state::text AS name, count(*) AS count
  FROM (SELECT state FROM postrider_internal.river_job LIMIT @limit) few
 GROUP BY 1
 ORDER BY 2 DESC, 1
