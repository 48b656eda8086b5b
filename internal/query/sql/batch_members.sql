-- Lists the members of a batch after a position, in the order of the request. The view would read the delivery of each
-- member of the batch for one page.
SELECT p.position::integer AS position, p.delivery_id,
       (SELECT e.event_id
          FROM postrider_internal.all_deliveries d
          JOIN postrider_internal.events e ON e.id = d.event_uuid AND e.day = d.event_day
         WHERE d.id = p.delivery_id LIMIT 1) AS event_id,
       l.left_at, l.left_after, l.left_reason
  FROM postrider_internal.batches b
 CROSS JOIN LATERAL unnest(b.delivery_ids) WITH ORDINALITY AS p(delivery_id, position)
  LEFT JOIN postrider_internal.left_members l ON l.batch_id = b.id AND l.delivery_id = p.delivery_id
 WHERE b.id = @id AND p.position > @after
 ORDER BY p.position
 LIMIT @limit
