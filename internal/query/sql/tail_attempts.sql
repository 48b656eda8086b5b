-- Lists the attempts of a day, whose table replaces {table}, from a place in the table on, the newest first. The table
-- only grows: an index by time would cost every attempt.
SELECT a.started_at + a.duration_us * interval '1 microsecond' AS at, 'attempt' AS kind, t.name AS topic,
       coalesce(e.event_id, '') AS event_id, coalesce(e.event_type, '') AS type, coalesce(e.subject, '') AS subject,
       e.id AS system_id, s.name AS subscription, a.outcome, a.verdict, a.delivery_id, a.batch_id, a.number, a.status,
       a.duration_us / 1000.0::float8 AS duration_ms, a.place
  FROM (SELECT *, ctid::text AS place FROM postrider_internal.{table}
         WHERE ctid >= @place::text::tid ORDER BY ctid DESC LIMIT @limit) a
  JOIN postrider_internal.event_subscriptions s ON s.id = a.subscription_id
  JOIN postrider_internal.topics t ON t.id = s.topic_id
  LEFT JOIN LATERAL (SELECT event_uuid, event_day FROM postrider_internal.all_deliveries
                      WHERE id = a.delivery_id LIMIT 1) d ON true
  LEFT JOIN postrider_internal.events e ON e.id = d.event_uuid AND e.day = d.event_day
 WHERE (@topic::text IS NULL OR t.name = @topic)
   AND (@subscription::text IS NULL OR s.name = @subscription)
   AND (NOT @failed OR a.outcome NOT IN ('Delivered', 'Acknowledged'))
