-- Lists the first attempts of a delivery, by itself and in the batches that it was in.
SELECT -- attempt_columns.sql
  FROM (SELECT * FROM postrider.delivery_attempts WHERE delivery_id = $1
         UNION ALL
        SELECT a.*
          FROM postrider_internal.batch_members m
          JOIN postrider.delivery_attempts a ON a.batch_id = m.batch_id
         WHERE m.delivery_id = $1 AND a.number <= coalesce(m.left_after, a.number)) a
 ORDER BY number, late, started_at
 LIMIT $2
