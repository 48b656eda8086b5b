-- Lists the newest attempts of a delivery or of batches, the oldest first.
SELECT *
  FROM (SELECT -- attempt_columns.sql
          FROM postrider.delivery_attempts a
         WHERE (@delivery::bigint IS NULL OR a.delivery_id = @delivery)
           AND (@batches::bigint[] IS NULL OR a.batch_id = ANY (@batches))
         ORDER BY a.started_at DESC, a.number DESC, a.late
         LIMIT @limit) newest
 ORDER BY started_at, number, late
