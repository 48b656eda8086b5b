-- Lists the deliveries that the next consumers of an event subscription receive, without locking them. Long bodies are
-- left out.
SELECT d.id AS delivery_id, e.event_id, e.event_type, e.subject, d.event_uuid AS system_id, e.published_at, d.attempts,
       CASE WHEN octet_length(e.body) <= 4096 THEN convert_from(e.body, 'UTF8') END AS body
  FROM (SELECT * FROM postrider_internal.deliveries
         WHERE subscription_id = @id AND available_at <= now()
           AND NOT EXISTS (SELECT FROM postrider_internal.event_subscription_states
                            WHERE subscription_id = @id AND hold IS NOT NULL)
         ORDER BY available_at, id LIMIT 10) d
  JOIN postrider_internal.events e ON e.id = d.event_uuid AND e.day = d.event_day
 ORDER BY d.available_at, d.id
