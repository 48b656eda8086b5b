-- Lists a page of event subscriptions by topic and name, with their attempts of the last hour in steps of 5 minutes.
-- For @backwards the page ends before the cursor.
WITH page AS MATERIALIZED (
    SELECT topic, subscription, subscription_id, endpoint_base_url, endpoint_kind, event_delivery_schema, retry_policy,
           max_delivery_attempts, event_time_to_live_in_minutes,
           dead_letter_destination ->> 'endpointType' AS dead_letter_destination, provisioning_state, hold, hold_cause,
           hold_since, hold_until, coalesce(probing, false) AS probing, created_at
      FROM postrider.event_subscriptions
     WHERE (@topic::text IS NULL OR topic = @topic)
       AND (@name::text IS NULL OR strpos(lower(subscription COLLATE "C"), lower(@name COLLATE "C")) > 0)
       AND (@hold::text IS NULL OR hold = @hold OR @hold = 'any' AND hold IS NOT NULL)
       AND (@cursor::text IS NULL
            OR CASE WHEN @backwards THEN (topic, subscription) < (@cursor_topic::text, @cursor)
                    ELSE (topic, subscription) > (@cursor_topic, @cursor) END)
     ORDER BY CASE WHEN @backwards THEN topic END DESC, CASE WHEN @backwards THEN subscription END DESC,
              topic, subscription
     LIMIT @limit
), unmerged AS MATERIALIZED (
    SELECT * FROM postrider_internal.unmerged_counts WHERE minute >= now() - interval '1 hour'
), steps AS (
    SELECT p.subscription_id,
           least(11, floor(extract(epoch FROM m.minute - (now() - interval '1 hour')) / 300)) AS step,
           sum(m.count) FILTER (WHERE m.kind = 'attempt' AND m.detail IN ('Delivered', 'Acknowledged')) AS good,
           sum(m.count) FILTER (WHERE m.kind = 'attempt' AND m.detail NOT IN ('Delivered', 'Acknowledged')) AS bad,
           sum(m.count) FILTER (WHERE m.kind = 'delivered') AS delivered,
           sum(m.count) FILTER (WHERE m.kind = 'dead_lettered') AS dead_lettered
      FROM page p
      JOIN postrider_internal.event_subscriptions s ON s.id = p.subscription_id
     CROSS JOIN LATERAL (
           SELECT r.*
             FROM generate_series(date_trunc('minute', now()) - interval '59 minutes', now(),
                                  interval '1 minute') AS g(at)
            CROSS JOIN LATERAL (SELECT minute, kind, detail, count
                                  FROM postrider_internal.rollups
                                 WHERE minute = g.at AND topic_id = s.topic_id AND subscription_id = s.id
                                OFFSET 0) r
            UNION ALL
           SELECT minute, kind, detail, count
             FROM unmerged
            WHERE topic_id = s.topic_id AND subscription_id = s.id) m
     GROUP BY 1, 2
), hour AS (
    SELECT p.subscription_id, array_agg(coalesce(s.good, 0)::bigint ORDER BY g.step) AS spark_good,
           array_agg(coalesce(s.bad, 0)::bigint ORDER BY g.step) AS spark_bad,
           (coalesce(sum(s.good), 0) + coalesce(sum(s.bad), 0))::bigint AS attempts,
           coalesce(sum(s.bad), 0)::bigint AS failures, coalesce(sum(s.delivered), 0)::bigint AS delivered,
           coalesce(sum(s.dead_lettered), 0)::bigint AS dead_letters
      FROM page p
     CROSS JOIN generate_series(0, 11) AS g(step)
      LEFT JOIN steps s ON s.subscription_id = p.subscription_id AND s.step = g.step
     GROUP BY 1
)
SELECT p.topic, p.subscription, p.endpoint_base_url, p.endpoint_kind, p.event_delivery_schema, p.retry_policy,
       p.max_delivery_attempts, p.event_time_to_live_in_minutes, p.dead_letter_destination, p.provisioning_state,
       p.hold, p.hold_cause, p.hold_since, p.hold_until, p.probing, p.created_at, h.spark_good, h.spark_bad, h.attempts,
       h.failures, h.delivered, h.dead_letters,
       CASE WHEN p.provisioning_state <> 'Succeeded'
            THEN (SELECT k.message FROM postrider.handshakes k
                   WHERE k.current AND k.topic = p.topic AND k.subscription = p.subscription LIMIT 1) END AS validation
  FROM page p
  JOIN hour h USING (subscription_id)
 ORDER BY CASE WHEN @backwards THEN p.topic END DESC, CASE WHEN @backwards THEN p.subscription END DESC,
          p.topic, p.subscription
