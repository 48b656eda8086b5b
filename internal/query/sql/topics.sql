-- Lists a page of topics by name, or reads the topic @only, with the counts of events of the last 24 hours and, in
-- steps of 5 minutes, of the last hour. For @backwards the page ends before @cursor.
WITH page AS MATERIALIZED (
    SELECT topic, kind, input_schema, event_retention_in_days, created_at, subscriptions::int AS subscriptions
      FROM postrider.topics
     WHERE (@name::text IS NULL OR strpos(lower(topic COLLATE "C"), lower(@name COLLATE "C")) > 0)
       AND (@only::text IS NULL OR topic = @only)
       AND (@cursor::text IS NULL OR CASE WHEN @backwards THEN topic < @cursor ELSE topic > @cursor END)
     ORDER BY CASE WHEN @backwards THEN topic END DESC, topic
     LIMIT @limit
), day AS (
    SELECT t.name AS topic, coalesce(sum(q.count) FILTER (WHERE q.kind = 'published'), 0)::bigint AS published,
           coalesce(sum(q.count) FILTER (WHERE q.kind = 'matched'), 0)::bigint AS matched,
           max(q.begins) FILTER (WHERE q.kind = 'published') AS last_quarter, array_agg(DISTINCT t.id) AS ids
      FROM (SELECT topic_id, begins, kind, count
              FROM postrider_internal.rollup_sums
             WHERE span = 15 AND begins > now() - interval '24 hours' AND topic_id > 0 AND subscription_id = 0
             UNION ALL
            SELECT topic_id, minute, kind, count FROM postrider_internal.unmerged_counts) q
      JOIN postrider_internal.topics t ON t.id = q.topic_id
     WHERE q.kind IN ('published', 'matched')
     GROUP BY 1
), minutes AS (
    SELECT t.name AS topic, least(11, floor(extract(epoch FROM now() - m.minute) / 300))::int AS step,
           sum(m.count)::bigint AS count
      FROM (SELECT minute, topic_id, kind, count FROM postrider_internal.rollups WHERE subscription_id = 0
             UNION ALL
            SELECT minute, topic_id, kind, count FROM postrider_internal.unmerged_counts) m
      JOIN postrider_internal.topics t ON t.id = m.topic_id
     WHERE m.minute > now() - interval '1 hour' AND m.kind = 'published'
     GROUP BY 1, 2
), hour AS (
    SELECT p.topic, array_agg(coalesce(m.count, 0) ORDER BY g.step DESC) AS spark_published
      FROM page p
     CROSS JOIN generate_series(0, 11) AS g(step)
      LEFT JOIN minutes m ON m.topic = p.topic AND m.step = g.step
     GROUP BY 1
)
SELECT p.*, coalesce(d.published, 0) AS published, coalesce(d.matched, 0) AS matched,
       coalesce(latest.at, d.last_quarter) AS last_published, h.spark_published
  FROM page p
  JOIN hour h USING (topic)
  LEFT JOIN day d USING (topic)
  LEFT JOIN LATERAL (
       SELECT g.at
         FROM generate_series(d.last_quarter + interval '14 minutes', d.last_quarter, interval '-1 minute') AS g(at)
        WHERE EXISTS (SELECT FROM postrider_internal.rollups r
                       WHERE r.minute = g.at AND r.topic_id = ANY (d.ids) AND r.subscription_id = 0
                         AND r.kind = 'published')
        LIMIT 1) latest ON true
 ORDER BY CASE WHEN @backwards THEN p.topic END DESC, p.topic
