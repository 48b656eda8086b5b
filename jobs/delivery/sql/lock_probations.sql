-- Reads and locks the probations $1, in the order of their keys.
SELECT probation_key, endpoint_base_url, since, until, coalesce(cause, ''), coalesce(condition, 'other'), step,
       failures_in_a_row, failed_events, coalesce(probe_job_id, 0), notified, now()
  FROM postrider_internal.probations WHERE probation_key = ANY ($1) ORDER BY probation_key FOR UPDATE
