-- Gives each row of "wave" (what: d for a delivery, b for a batch; id, subscription_id, attempts, held_reruns, hold,
-- due, job_id, rate_times) a job instead of its hold, in one row version. It is a part of claim.sql and release.sql.
batches AS (
    UPDATE postrider_internal.batches b SET hold = NULL, last_hold = w.hold, job_id = w.job_id, held_reruns = 0
      FROM wave w WHERE w.what = 'b' AND b.id = w.id
), deliveries AS (
    UPDATE postrider_internal.deliveries d SET hold = NULL, last_hold = w.hold, job_id = w.job_id, held_reruns = 0
      FROM wave w WHERE w.what = 'd' AND d.id = w.id
), jobs AS (
    INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT job_id, postrider_internal.job_state(due),
           jsonb_strip_nulls(jsonb_build_object('s', subscription_id, what, id, 'n', attempts + 1,
                                                'r', nullif(held_reruns, 0), 'p', nullif(rate_times, 0))),
           CASE what WHEN 'd' THEN 'deliver' ELSE 'batch' END, 'deliveries', 1, 1000, due
      FROM wave
)
