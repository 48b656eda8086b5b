-- Counts the newest @limit dead letters that a filter matches by reason, outcome, status, event subscription and day,
-- and returns the @top most frequent values of each, and the number of all.
WITH few AS MATERIALIZED (
    SELECT reason, coalesce(last_outcome, '') AS outcome, coalesce(last_status, 0) AS status, topic, subscription,
           (dead_lettered_at AT TIME ZONE 'UTC')::date AS day
      FROM postrider.dead_letters -- dead_letters_where.sql
     ORDER BY dead_lettered_at DESC
     LIMIT @limit
), grouped AS (
    SELECT CASE WHEN grouping(reason) = 0 THEN 'reason'
                WHEN grouping(outcome) = 0 THEN 'outcome'
                WHEN grouping(status) = 0 THEN 'status'
                WHEN grouping(topic, subscription) = 0 THEN 'subscription'
                WHEN grouping(day) = 0 THEN 'day'
                ELSE 'all' END AS facet,
           coalesce(reason, outcome, status::text, topic || '/' || subscription, day::text, '') AS name,
           count(*) AS count
      FROM few
     GROUP BY GROUPING SETS ((reason), (outcome), (status), (topic, subscription), (day), ())
)
SELECT facet, name, count
  FROM (SELECT *, row_number() OVER (PARTITION BY facet ORDER BY count DESC, name) AS place FROM grouped) ranked
 WHERE place <= @top
 ORDER BY facet, CASE facet WHEN 'day' THEN name END DESC, place
