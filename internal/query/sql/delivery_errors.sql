-- Reads the error or the beginning of the response of the last attempt of deliveries, by itself or in their batch. The
-- day on which that attempt began limits the partitions: it is recorded on this day or the next one.
SELECT w.delivery_id, coalesce(a.error, left(a.response, 300)) AS error
  FROM unnest(@deliveries::bigint[], @batches::bigint[], @days::date[]) AS w(delivery_id, batch_id, day)
 CROSS JOIN LATERAL (
       SELECT error, response
         FROM (SELECT s.error, postrider.try_text(s.response_excerpt) AS response, s.started_at
                 FROM postrider_internal.delivery_attempts s
                WHERE s.delivery_id = w.delivery_id AND s.day BETWEEN w.day AND w.day + 1
                UNION ALL
               SELECT b.error, postrider.try_text(b.response_excerpt), b.started_at
                 FROM postrider_internal.delivery_attempts b
                WHERE b.batch_id = w.batch_id AND b.day BETWEEN w.day AND w.day + 1) last
        ORDER BY started_at DESC
        LIMIT 1) a
 WHERE coalesce(a.error, a.response, '') <> ''
