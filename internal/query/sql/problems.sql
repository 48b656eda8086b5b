-- Groups failed attempts since @from by event subscription and outcome, the last failure first, with the newest failed
-- attempt, or else a pending delivery or a dead letter, as an example. For @hours it reads the sums by the hour, which
-- are enough for days, and finds the minutes of the first and the last failure by key. The example is found by names
-- and ids whose indexes are in the order of time.
WITH kept AS (
    SELECT minute, minute AS first, minute AS last, topic_id, subscription_id, kind, detail, count
      FROM postrider_internal.rollups
     WHERE NOT @hours AND minute >= @from
     UNION ALL
    SELECT NULL, begins, begins + interval '59 minutes', topic_id, subscription_id, kind, detail, count
      FROM postrider_internal.rollup_sums
     WHERE @hours AND span = 60 AND begins >= date_bin('1 hour', @from::timestamptz, 'epoch')
     UNION ALL
    SELECT minute, minute, minute, topic_id, subscription_id, kind, detail, count
      FROM postrider_internal.unmerged_counts
     WHERE minute >= @from
), counted AS (
    SELECT t.name AS topic, s.name AS subscription, k.kind, k.detail, sum(k.count)::bigint AS count,
           min(k.first) AS first, max(k.last) AS last, min(k.first_minute) AS first_minute,
           max(k.last_minute) AS last_minute, max(k.subscription_id) AS subscription_id,
           array_agg(k.subscription_id) AS subscriptions, array_agg(k.topic_id) AS topics
      FROM (SELECT topic_id, subscription_id, kind, detail, sum(count) AS count, min(first) AS first, max(last) AS last,
                   min(minute) AS first_minute, max(minute) AS last_minute
              FROM kept
             WHERE kind IN ('attempt', 'dead_lettered')
             GROUP BY 1, 2, 3, 4) k
      JOIN postrider_internal.topics t ON t.id = k.topic_id
      JOIN postrider_internal.event_subscriptions s ON s.id = k.subscription_id
     GROUP BY 1, 2, 3, 4
), sums AS (
    SELECT topic, subscription, coalesce(sum(count) FILTER (WHERE kind = 'attempt'), 0)::bigint AS attempts,
           coalesce(sum(count) FILTER (WHERE kind = 'dead_lettered'), 0)::bigint AS dead_letters
      FROM counted
     GROUP BY 1, 2
), failing AS MATERIALIZED (
    SELECT c.*, c.detail AS outcome, c.count AS failures, s.attempts, s.dead_letters
      FROM counted c
      JOIN sums s USING (topic, subscription)
     WHERE c.kind = 'attempt' AND c.detail NOT IN ('Delivered', 'Acknowledged')
       AND (@topic::text IS NULL OR c.topic = @topic)
     ORDER BY c.last DESC, c.count DESC
     LIMIT @limit
)
SELECT f.topic, f.subscription, f.outcome, f.failures, f.attempts,
       coalesce(least(earliest.at, f.first_minute), f.first) AS first,
       coalesce(greatest(latest.at, f.last_minute), least(f.last, now())) AS last, f.dead_letters, v.hold, v.hold_until,
       v.delivery_hold, coalesce(w.waiting, 0) AS waiting, h.held, a.batch_id,
       CASE WHEN a.batch_id IS NULL THEN coalesce(a.delivery_id, d.id) END AS delivery_id, l.id AS dead_letter_id,
       coalesce(a.status, l.last_status) AS status, coalesce(a.error, l.last_error) AS error,
       left(coalesce(a.response_excerpt, postrider.try_text(l.last_response)), 300) AS response,
       CASE WHEN d.id IS NOT NULL AND d.current_hold IS NULL AND NOT (d.pulled AND d.job_id IS NOT NULL)
            THEN greatest(d.due_at, now()) END AS next_attempt,
       coalesce(round(100 * t.part * f.failures / f.attempts, 1), 0)::float8 AS throttled_percent
  FROM failing f
  JOIN postrider_internal.event_subscriptions s ON s.id = f.subscription_id
  LEFT JOIN LATERAL (
       SELECT max(g.at) AS at
         FROM generate_series(least(f.last, date_trunc('minute', now())), f.last - interval '59 minutes',
                              interval '-1 minute') AS g(at)
        CROSS JOIN LATERAL (SELECT FROM postrider_internal.rollups r
                             WHERE r.minute = g.at AND r.topic_id = ANY (f.topics)
                               AND r.subscription_id = ANY (f.subscriptions) AND r.kind = 'attempt'
                               AND r.detail = f.outcome
                             LIMIT 1) found
        WHERE @hours) latest ON true
  LEFT JOIN LATERAL (
       SELECT min(g.at) AS at
         FROM generate_series(f.first, f.first + interval '59 minutes', interval '1 minute') AS g(at)
        CROSS JOIN LATERAL (SELECT FROM postrider_internal.rollups r
                             WHERE r.minute = g.at AND r.topic_id = ANY (f.topics)
                               AND r.subscription_id = ANY (f.subscriptions) AND r.kind = 'attempt'
                               AND r.detail = f.outcome
                             LIMIT 1) found
        WHERE @hours) earliest ON true
  LEFT JOIN LATERAL (
       SELECT e.hold, e.hold_until, n.delivery_hold
         FROM postrider.event_subscriptions e
         JOIN postrider_internal.subscription_holds n ON n.subscription_id = s.id
        WHERE e.subscription_id = s.id) v ON true
  LEFT JOIN LATERAL (
       SELECT count(*)::int AS waiting, max(id) AS example
         FROM (SELECT id
                 FROM (SELECT id, last_outcome FROM postrider_internal.deliveries
                        WHERE subscription_id = s.id ORDER BY id LIMIT 10000) oldest
                WHERE last_outcome = f.outcome
                LIMIT 1000) few) w ON true
  LEFT JOIN LATERAL (
       SELECT least(10000, (SELECT count(*) FROM (SELECT FROM postrider_internal.deliveries x
                                                   WHERE x.subscription_id = s.id AND x.hold IS NOT NULL
                                                   LIMIT 10000) single)
              + (SELECT count(*) FROM (SELECT FROM postrider_internal.held_available a
                                        WHERE a.subscription_id = s.id LIMIT 10000) available)
              + (SELECT coalesce(sum(b.members), 0) FROM postrider_internal.batches b
                  WHERE b.subscription_id = s.id AND b.hold IS NOT NULL))::int AS held) h ON true
  LEFT JOIN postrider_internal.current_deliveries d ON d.id = w.example AND d.state = 'pending'
  LEFT JOIN LATERAL (
       SELECT avg((status = 429)::int) AS part
         FROM (SELECT status
                 FROM postrider_internal.delivery_attempts
                WHERE f.outcome = 'Busy' AND subscription_id = s.id AND verdict <> 'deliver' AND outcome = 'Busy'
                  AND started_at >= @from AND day >= (@from::timestamptz AT TIME ZONE 'UTC')::date
                ORDER BY started_at DESC
                LIMIT 1000) newest) t ON true
  LEFT JOIN LATERAL (
       SELECT delivery_id, batch_id, status, error, postrider.try_text(response_excerpt) AS response_excerpt
         FROM (SELECT *
                 FROM postrider_internal.delivery_attempts
                WHERE subscription_id = s.id AND verdict <> 'deliver'
                  AND started_at < coalesce(greatest(latest.at, f.last_minute), now()) + interval '1 minute'
                ORDER BY started_at DESC
                LIMIT 1000) newest
        WHERE outcome = f.outcome
        ORDER BY started_at DESC
        LIMIT 1) a ON true
  LEFT JOIN LATERAL (
       SELECT id, last_status, last_error, last_response
         FROM (SELECT * FROM postrider_internal.dead_letters
                WHERE topic = f.topic AND subscription = f.subscription AND d.id IS NULL
                ORDER BY dead_lettered_at DESC LIMIT 200) newest
        WHERE last_outcome = f.outcome
        ORDER BY dead_lettered_at DESC
        LIMIT 1) l ON true
 ORDER BY last DESC, f.failures DESC
