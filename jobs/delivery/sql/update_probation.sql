-- Stores what a group of results has changed of the probation $1.
UPDATE postrider_internal.probations
   SET since = $2, until = $3, cause = $4, condition = $5, step = $6, failures_in_a_row = $7, probe_job_id = $8,
       notified = $9, failed_events = $10, updated_at = now()
 WHERE probation_key = $1
