-- Reads one batch. expires_at is the latest end of its pending members' time to live.
SELECT -- batch_columns.sql
       , b.subscription_id, b.job_id,
       (SELECT max(d.expires_at) FROM postrider.deliveries d
         WHERE d.batch_id = @id AND d.state = 'pending') AS expires_at
  FROM postrider.batches v
  JOIN postrider_internal.batches b ON b.id = v.batch_id
 WHERE v.batch_id = @id
