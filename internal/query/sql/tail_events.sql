-- Lists the events that were published since @from, the newest first, without those that a redelivery stored again.
SELECT e.published_at AS at, 'published' AS kind, t.name AS topic, e.event_id, e.event_type AS type, e.subject,
       e.id AS system_id, '' AS subscription, '' AS outcome, '' AS verdict, NULL::bigint AS delivery_id,
       NULL::bigint AS batch_id, 0 AS number, NULL::int AS status, 0::float8 AS duration_ms, e.id::text AS place
  FROM postrider_internal.events e
  JOIN postrider_internal.topics t ON t.id = e.topic_id
 WHERE e.day = (e.published_at AT TIME ZONE 'UTC')::date AND e.id > @from AND e.day >= @day
   AND (@topic::text IS NULL OR t.name = @topic)
 ORDER BY e.id DESC
 LIMIT @limit
