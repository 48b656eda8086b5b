-- Counts the failing problems of up to @limit event subscriptions that have any problem, those with the most first.
SELECT topic, subscription, count(*) FILTER (WHERE state = 'failing') AS failing
  FROM postrider.problems
 GROUP BY topic, subscription
 ORDER BY failing DESC, topic, subscription
 LIMIT @limit
