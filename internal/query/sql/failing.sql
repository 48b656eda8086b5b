-- Lists the problems that are failing, the last failure first, with the response to the failed attempt.
SELECT p.problem_id, p.topic, p.subscription, p.outcome, p.since, p.delivery_id, p.batch_id, p.last_status AS status,
       p.last_error AS error, left(a.response, 300) AS response, coalesce(w.waiting, 0) AS waiting,
       EXISTS (SELECT FROM postrider_internal.dead_letters l
                WHERE l.topic = p.topic AND l.subscription = p.subscription AND l.state = 'open') AS open_dead_letters
  FROM (SELECT * FROM postrider.problems WHERE state = 'failing' ORDER BY last_failed_at DESC LIMIT @limit) p
  LEFT JOIN LATERAL (
       SELECT postrider.try_text(t.response_excerpt) AS response
         FROM postrider_internal.delivery_attempts t
        WHERE t.day >= (p.last_failed_at AT TIME ZONE 'UTC')::date -- prunes partitions
          AND (t.delivery_id = p.delivery_id OR t.batch_id = p.batch_id) AND t.outcome = p.outcome
        ORDER BY t.started_at DESC
        LIMIT 1) a ON true
  LEFT JOIN LATERAL (
       SELECT count(*)::int AS waiting
         FROM (SELECT
                 FROM (SELECT last_outcome FROM postrider_internal.deliveries
                        WHERE subscription_id = p.subscription_id ORDER BY id LIMIT 10000) oldest
                WHERE last_outcome = p.outcome
                LIMIT 1000) few) w ON true
 ORDER BY p.last_failed_at DESC
