-- Reads the batch of @job.
SELECT id, attempts, skipped_offsets, bytes, next_attempt_at, not_before, first_attempt_at, coalesce(last_hold, ''),
       created_at
  FROM postrider_internal.batches WHERE job_id = @job AND state = 'pending'
