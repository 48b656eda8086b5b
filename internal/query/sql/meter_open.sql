-- Counts the open dead letters of up to @limit event subscriptions, up to 10,000 of each and about 100,000 of all: the
-- index of open ones is skipped from name to name, so that names with millions cost no more.
WITH RECURSIVE named AS (
    (SELECT topic, subscription FROM postrider_internal.dead_letters
      WHERE state = 'open' ORDER BY topic, subscription LIMIT 1)
     UNION ALL
    SELECT n.topic, n.subscription
      FROM named p
     CROSS JOIN LATERAL (SELECT topic, subscription FROM postrider_internal.dead_letters
                          WHERE state = 'open' AND (topic, subscription) > (p.topic, p.subscription)
                          ORDER BY topic, subscription
                          LIMIT 1) n
), few AS MATERIALIZED (
    SELECT topic, subscription FROM named LIMIT @limit
)
SELECT f.topic, f.subscription, c.open
  FROM few f
 CROSS JOIN (SELECT greatest(1, least(10000, 100000 / greatest(1, count(*)))) AS most FROM few) each
 CROSS JOIN LATERAL (SELECT count(*) AS open
                       FROM (SELECT FROM postrider_internal.dead_letters l
                              WHERE l.state = 'open' AND l.topic = f.topic AND l.subscription = f.subscription
                              LIMIT each.most) letters) c
 ORDER BY f.topic, f.subscription
