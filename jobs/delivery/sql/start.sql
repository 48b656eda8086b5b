-- Gives each row of "wave" (what: d for a delivery, b for a batch; id, subscription_id, attempts, held_reruns, hold,
-- due, job_id, permits, exempt) a job instead of its hold, in one row version. It is a part of claim.sql, limited.sql
-- and release.sql.
batches AS (
    UPDATE postrider_internal.batches b SET hold = NULL, last_hold = w.hold, job_id = w.job_id, held_reruns = 0
      FROM wave w WHERE w.what = 'b' AND b.id = w.id
), deliveries AS (
    UPDATE postrider_internal.deliveries d SET hold = NULL, last_hold = w.hold, job_id = w.job_id, held_reruns = 0
      FROM wave w WHERE w.what = 'd' AND d.id = w.id
), jobs AS (
    INSERT INTO postrider_internal.new_jobs
    SELECT j.*
      FROM wave w, postrider_internal.attempt_job(
           w.job_id, w.due, w.subscription_id, delivery => CASE w.what WHEN 'd' THEN w.id END,
           batch => CASE w.what WHEN 'b' THEN w.id END, number => w.attempts + 1, reruns => w.held_reruns,
           permits => w.permits, exempt => w.exempt) j
)
