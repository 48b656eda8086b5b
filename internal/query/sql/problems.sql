-- Groups failed attempts since @from by event subscription and outcome, the last failure first, with the newest failed
-- attempt, or else a pending delivery or a dead letter, as an example. Problems that are failing are listed whenever
-- they have failed last. For @hours it reads the sums by the hour, which are enough for days, and finds the minutes of
-- the first and the last failure by key. The example is found by names and ids whose indexes are in the order of time.
-- The open dead letters are ordered: PostgreSQL could read the whole table of them instead of their index. Holds are
-- read by subscription (OFFSET 0), not all of them for a join. No later attempt is read than of the day of @to, which
-- leaves out the partitions of the days ahead.
-- What is deleted has no problems: failures of an earlier event subscription with the same name only add to the counts.
-- @state: NULL = all, unresolved = all but resolved ones. @id selects one problem, whatever its state.
WITH unmerged AS MATERIALIZED (
    SELECT minute, topic_id, subscription_id, kind, detail, count
      FROM postrider_internal.unmerged_counts
     WHERE minute >= least(@from, now() - interval '1 hour') AND kind IN ('attempt', 'dead_lettered')
), kept AS (
    SELECT minute, minute AS first, minute AS last, topic_id, subscription_id, kind, detail, count
      FROM postrider_internal.rollups
     WHERE NOT @hours AND minute >= @from
     UNION ALL
    SELECT NULL, begins, begins + interval '59 minutes', topic_id, subscription_id, kind, detail, count
      FROM postrider_internal.rollup_sums
     WHERE @hours AND span = 60 AND begins >= date_bin('1 hour', @from::timestamptz, 'epoch')
     UNION ALL
    SELECT minute, minute, minute, topic_id, subscription_id, kind, detail, count FROM unmerged WHERE minute >= @from
), counted AS (
    SELECT t.name AS topic, s.name AS subscription, k.detail AS outcome, sum(k.count)::bigint AS count,
           min(k.first) AS first, max(k.last) AS last, min(k.first_minute) AS first_minute,
           max(k.last_minute) AS last_minute, max(k.subscription_id) AS subscription_id,
           array_agg(k.subscription_id) AS subscriptions, array_agg(k.topic_id) AS topics
      FROM (SELECT topic_id, subscription_id, detail, sum(count) AS count, min(first) AS first, max(last) AS last,
                   min(minute) AS first_minute, max(minute) AS last_minute
              FROM kept
             WHERE kind = 'attempt'
             GROUP BY 1, 2, 3) k
      JOIN postrider_internal.topics t ON t.id = k.topic_id
      JOIN postrider_internal.event_subscriptions s ON s.id = k.subscription_id
     GROUP BY 1, 2, 3
), cases AS (
    SELECT coalesce(p.problem_id, postrider_internal.problem_id(c.subscription_id, c.outcome)) AS problem_id,
           coalesce(p.state, CASE WHEN c.last >= now() - interval '2 minutes' THEN 'failing'
                                  ELSE 'recovered' END) AS state,
           coalesce(p.topic, c.topic) AS topic, coalesce(p.subscription, c.subscription) AS subscription,
           coalesce(p.outcome, c.outcome) AS outcome, coalesce(p.subscription_id, c.subscription_id) AS subscription_id,
           coalesce(c.count, 0) AS failures, c.first, c.last, c.first_minute, c.last_minute, c.subscriptions, c.topics,
           greatest(p.last_failed_at, c.last_minute) AS known_last, p.since, p.last_failed_at, p.last_status,
           p.last_error, p.delivery_id, p.batch_id, p.recovered_at, p.acknowledged_until, p.acknowledged_at,
           p.acknowledged_by, p.note, p.resolved_at, p.resolved_by
      FROM (SELECT k.*
              FROM counted k
              JOIN postrider_internal.event_subscriptions s ON s.id = k.subscription_id AND s.deleted_at IS NULL
             WHERE k.outcome NOT IN ('Delivered', 'Acknowledged')) c
      FULL JOIN postrider.problems p ON p.subscription_id = c.subscription_id AND p.outcome = c.outcome
     WHERE c.outcome IS NOT NULL OR p.state IN ('failing', 'acknowledged') OR p.problem_id = @id
), failing AS MATERIALIZED (
    SELECT c.*, coalesce((SELECT sum(a.count) FROM counted a
                           WHERE a.topic = c.topic AND a.subscription = c.subscription), 0)::bigint AS attempts,
           (SELECT max(g.at)
              FROM generate_series(least(c.last, date_trunc('minute', now())),
                                   greatest(c.last - interval '59 minutes', date_trunc('minute', c.last_failed_at)),
                                   interval '-1 minute') AS g(at)
             CROSS JOIN LATERAL (SELECT FROM postrider_internal.rollups r
                                  WHERE r.minute = g.at AND r.topic_id = ANY (c.topics)
                                    AND r.subscription_id = ANY (c.subscriptions) AND r.kind = 'attempt'
                                    AND r.detail = c.outcome
                                  LIMIT 1) found
             WHERE @hours) AS latest,
           (SELECT g.at
              FROM (SELECT generate_series(c.first, c.first + interval '59 minutes', interval '1 minute') AS at
                     ORDER BY 1) g
             CROSS JOIN LATERAL (SELECT FROM postrider_internal.rollups r
                                  WHERE r.minute = g.at AND r.topic_id = ANY (c.topics)
                                    AND r.subscription_id = ANY (c.subscriptions) AND r.kind = 'attempt'
                                    AND r.detail = c.outcome
                                  LIMIT 1) found
             WHERE @hours
             ORDER BY g.at
             LIMIT 1) AS earliest
      FROM cases c
     WHERE (@topic::text IS NULL OR c.topic = @topic) AND (@id::uuid IS NULL OR c.problem_id = @id)
       AND (@state::text IS NULL OR c.state = @state OR @state = 'unresolved' AND c.state <> 'resolved')
     ORDER BY coalesce(c.known_last, c.last) DESC, c.failures DESC
     LIMIT @limit
)
SELECT f.problem_id, f.state, f.topic, f.subscription, f.outcome, f.failures, f.attempts,
       coalesce(f.since, least(f.earliest, f.first_minute), f.first) AS since,
       coalesce(least(f.earliest, f.first_minute), f.first, f.since) AS first,
       coalesce(greatest(a.started_at, f.last_failed_at), greatest(f.latest, f.last_minute),
                least(f.last, now())) AS last,
       f.recovered_at, f.acknowledged_until, f.acknowledged_at, f.acknowledged_by, f.note, f.resolved_at, f.resolved_by,
       (SELECT count(*)
          FROM (SELECT FROM postrider_internal.dead_letters
                 WHERE topic = f.topic AND subscription = f.subscription AND state = 'open'
                 ORDER BY dead_lettered_at
                 LIMIT 1000) few) AS open_dead_letters,
       v.hold, v.until AS hold_until, v.delivery_hold, w.waiting,
       least(10000, (SELECT count(*) FROM (SELECT FROM postrider_internal.deliveries x
                                            WHERE x.subscription_id = s.id AND x.hold IS NOT NULL
                                            LIMIT 10000) single)
              + (SELECT count(*) FROM (SELECT FROM postrider_internal.held_available a
                                        WHERE a.subscription_id = s.id LIMIT 10000) available)
              + (SELECT coalesce(sum(b.members), 0) FROM postrider_internal.batches b
                  WHERE b.subscription_id = s.id AND b.hold IS NOT NULL))::int AS held,
       (SELECT array_agg(coalesce(c.count, 0)::bigint ORDER BY g.step)
          FROM generate_series(0, 11) AS g(step)
          LEFT JOIN (SELECT least(11, floor(extract(epoch FROM m.minute - (now() - interval '1 hour')) / 300)) AS step,
                            sum(m.count) AS count
                       FROM (SELECT r.minute, r.count
                               FROM generate_series(greatest(date_trunc('minute', now()) - interval '59 minutes',
                                                             f.earliest),
                                                    least(now(), f.latest), interval '1 minute') AS t(at)
                              CROSS JOIN LATERAL (SELECT minute, count FROM postrider_internal.rollups
                                                   WHERE minute = t.at AND topic_id = s.topic_id
                                                     AND subscription_id = s.id AND kind = 'attempt'
                                                     AND detail = f.outcome
                                                  OFFSET 0) r
                              WHERE coalesce(f.known_last, f.last) >= now() - interval '1 hour'
                              UNION ALL
                             SELECT minute, count FROM unmerged
                              WHERE subscription_id = s.id AND kind = 'attempt' AND detail = f.outcome
                                AND minute > now() - interval '1 hour') m
                      GROUP BY 1) c ON c.step = g.step) AS recent_failures,
       coalesce(a.batch_id, f.batch_id) AS batch_id,
       CASE WHEN a.batch_id IS NULL AND f.batch_id IS NULL THEN coalesce(a.delivery_id, f.delivery_id, d.id)
            END AS delivery_id, l.id AS dead_letter_id,
       coalesce(a.status, f.last_status, l.last_status) AS status,
       coalesce(a.error, f.last_error, l.last_error) AS error,
       left(coalesce(a.response_excerpt, postrider.try_text(l.last_response)), 300) AS response,
       CASE WHEN d.id IS NOT NULL AND d.hold IS NULL AND b.hold IS NULL AND NOT (d.pulled AND d.job_id IS NOT NULL)
                 AND postrider_internal.hold_ahead(v.delivery_hold, d.pulled, coalesce(b.job_id, d.job_id, 0)) IS NULL
            THEN greatest(coalesce(b.next_attempt_at, d.next_attempt_at), now()) END AS next_attempt,
       coalesce(round(100 * (
           SELECT avg((status = 429)::int)
             FROM (SELECT status
                     FROM postrider_internal.delivery_attempts
                    WHERE f.outcome = 'Busy' AND subscription_id = s.id AND verdict <> 'deliver' AND outcome = 'Busy'
                      AND started_at >= @from AND day BETWEEN (@from::timestamptz AT TIME ZONE 'UTC')::date
                          AND (@to::timestamptz AT TIME ZONE 'UTC')::date
                    ORDER BY started_at DESC
                    LIMIT 200) newest) * f.failures / nullif(f.attempts, 0), 1), 0)::float8 AS throttled_percent
  FROM failing f
  JOIN postrider_internal.event_subscriptions s ON s.id = f.subscription_id
  LEFT JOIN LATERAL (
       SELECT hold, until, delivery_hold
         FROM postrider_internal.subscription_holds
        WHERE subscription_id = s.id
       OFFSET 0) v ON true
 CROSS JOIN LATERAL (
       SELECT count(*)::int AS waiting, max(id) AS example
         FROM (SELECT id
                 FROM (SELECT id, last_outcome FROM postrider_internal.deliveries
                        WHERE subscription_id = s.id ORDER BY id LIMIT 10000) oldest
                WHERE last_outcome = f.outcome
                LIMIT 1000) few) w
  LEFT JOIN postrider_internal.deliveries d ON d.id = w.example
  LEFT JOIN postrider_internal.batches b ON b.id = d.batch_id
  LEFT JOIN LATERAL (
       SELECT started_at, delivery_id, batch_id, status, error,
              postrider.try_text(response_excerpt) AS response_excerpt
         FROM (SELECT *
                 FROM postrider_internal.delivery_attempts
                WHERE subscription_id = s.id AND verdict <> 'deliver'
                  AND day <= (@to::timestamptz AT TIME ZONE 'UTC')::date
                  AND started_at < coalesce(greatest(f.latest, f.known_last), now()) + interval '1 minute'
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
