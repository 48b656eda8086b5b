-- Lists the batches that a delivery was in.
SELECT batch_id, left_after, left_reason
  FROM postrider_internal.batch_members
 WHERE delivery_id = @id
 ORDER BY batch_id
