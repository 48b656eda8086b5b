-- Reads a delivery with its event.
SELECT -- delivery_columns.sql
       , o.first_attempt_at, o.subscription_id, s.endpoint_base_url, coalesce(o.job_id, b.job_id) AS job_id,
       e.schema, convert_from(e.body, 'UTF8') AS body_text,
       -- redelivered_from_kind.sql
  FROM postrider.deliveries d
 CROSS JOIN LATERAL (SELECT first_attempt_at, subscription_id, job_id, event_uuid, event_day
                       FROM postrider_internal.all_deliveries WHERE id = @id LIMIT 1) o
  JOIN postrider_internal.event_subscriptions s ON s.id = o.subscription_id
  LEFT JOIN postrider_internal.batches b ON b.id = d.batch_id
  LEFT JOIN postrider_internal.events e ON e.id = o.event_uuid AND e.day = o.event_day
 WHERE d.delivery_id = @id
 LIMIT 1
