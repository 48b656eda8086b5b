-- Reads one dead letter with everything that is kept of it.
SELECT -- dead_letter_columns.sql
       , body_text, last_response, body_error, edit,
       postrider_internal.dead_letter_version(dead_lettered_at, redelivered_at, resolved_at, erased_at) AS version,
       NOT EXISTS (SELECT FROM postrider.event_subscriptions s
                    WHERE s.topic = l.topic AND s.subscription = l.subscription) AS subscription_gone,
       NOT EXISTS (SELECT FROM postrider_internal.events e WHERE e.id = l.system_id) AS event_gone,
       (SELECT h.dead_letter_id FROM postrider_internal.delivery_history h WHERE h.id = l.redelivery_id
           AND h.day >= (l.redelivered_at AT TIME ZONE 'UTC')::date LIMIT 1)
           AS redelivered_as,
       -- redelivered_from_kind.sql
  FROM postrider.dead_letters l
 WHERE dead_letter_id = @id
