-- Lists the members of a batch after a position, in the order of the request.
SELECT position, delivery_id, event_id, left_at, left_after, left_reason
  FROM postrider.batch_members
 WHERE batch_id = @id AND position > @after
 ORDER BY position
 LIMIT @limit
