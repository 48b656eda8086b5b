WITH truth AS (
    SELECT topic, NULL AS subscription, 'published' AS kind, '' AS detail, count(*) AS n FROM postrider.events
    GROUP BY 1
    UNION ALL SELECT topic, subscription, 'matched', '', count(*) FROM postrider.deliveries GROUP BY 1, 2
    UNION ALL SELECT topic, subscription, 'attempt', outcome, count(*) FROM postrider.delivery_attempts WHERE NOT late
    GROUP BY 1, 2, 4
    UNION ALL SELECT topic, subscription, state, CASE WHEN state = 'delivered' AND attempts = 1 THEN 'FirstAttempt'
        ELSE coalesce(reason, '') END, count(*) FROM postrider.deliveries WHERE state <> 'pending' GROUP BY 1, 2, 3, 4
    UNION ALL SELECT topic, subscription, 'backlog', '', count(*) FROM postrider.deliveries WHERE state = 'pending'
    GROUP BY 1, 2
), counted AS (
    SELECT topic, subscription, kind, detail, sum(count) AS n FROM postrider.delivery_counts WHERE kind <> 'duplicate'
    GROUP BY 1, 2, 3, 4
    UNION ALL SELECT topic, subscription, 'backlog', '', pending_deliveries FROM postrider.backlogs
)
SELECT count(*) FROM truth FULL JOIN counted ON truth.topic = counted.topic AND coalesce(truth.subscription,
    '') = coalesce(counted.subscription, '')
       AND truth.kind = counted.kind AND truth.detail = counted.detail
 WHERE truth.n IS DISTINCT FROM counted.n
