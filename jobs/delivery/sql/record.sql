-- T3 records a group of results in one statement. One result is one delivery attempt, of a single delivery or of a
-- batch.
--
-- The job row is the token. All parts join it, so only the statement that deletes the row records the attempt,
-- changes the deliveries and inserts the next job. A node that was considered dead and returns deletes nothing, and
-- so changes nothing. A batch whose members leave it before its request (verdict leave) keeps its row, which is
-- locked instead.
--
-- The next job is a new row. River marks a finished run completed by its id, and would mark the next run instead (a
-- test lost 199 of 200 events).
--
-- Its variants record_ends.sql and record_whole.sql are for single deliveries, and for whole batches, that end without
-- a dead letter. Most groups consist of these, and the parts that are not there take 0.4 ms of PostgreSQL's time
-- though they find nothing to do.
WITH -- results.sql
gone AS (
    -- token.sql
), kept AS MATERIALIZED (
    SELECT j.id FROM postrider_internal.river_job j JOIN input i ON j.id = i.job_id AND j.created_at = i.job_created_at
     WHERE j.id = ANY (ARRAY (SELECT job_id FROM input WHERE verdict = 'leave')) FOR UPDATE OF j
), token AS (
    SELECT id FROM gone UNION ALL SELECT id FROM kept
), -- attempts.sql
members AS MATERIALIZED (
    -- The deliveries that change: a single delivery always; of a batch those with a fate, and all if the batch
    -- was sent or ends. A retry of a single delivery, or of a member that leaves its batch, needs a job.
    SELECT d.id, d.attempts_made, r.batch_id, r.subscription_id, r.retry_policy, r.number, r.reruns, r.status,
           r.outcome, r.error, r.excerpt, r.started_at, r.skipped_offsets, r.state IS NOT NULL AS ends,
           coalesce(f.next_at, r.next_at) AS next_at, f.dead_letter_id,
           CASE WHEN f.delivery_id IS NULL THEN r.reason ELSE f.reason END AS reason,
           CASE WHEN f.delivery_id IS NULL THEN r.state ELSE f.state END AS state,
           CASE WHEN f.delivery_id IS NOT NULL THEN f.not_before
                WHEN r.batch_id IS NULL THEN r.not_before END AS not_before,
           CASE WHEN coalesce(f.verdict, CASE WHEN r.batch_id IS NULL THEN r.verdict END) = 'retry'
                THEN nextval('postrider_internal.river_job_id_seq') END AS next_job,
           CASE WHEN r.batch_id IS NULL AND r.verdict = 'hold' THEN r.reason END AS hold
      FROM result r
     CROSS JOIN LATERAL (
           SELECT r.delivery_id AS id, r.number AS attempts_made WHERE r.batch_id IS NULL
            UNION ALL
           SELECT d.id, coalesce(nullif(r.number, 0), d.attempts)
             FROM postrider_internal.deliveries d WHERE d.batch_id = r.batch_id OFFSET 0) d
      LEFT JOIN unnest(@fates_job_id::bigint[], @fates_delivery_id::bigint[], @fates_verdict::text[],
                       @fates_state::text[], @fates_next_at::timestamptz[], @fates_not_before::timestamptz[],
                       @fates_reason::text[], @fates_dead_letter_id::uuid[])
                AS f(job_id, delivery_id, verdict, state, next_at, not_before, reason, dead_letter_id)
                ON f.job_id = r.job_id AND f.delivery_id = d.id
     WHERE f.delivery_id IS NOT NULL OR r.batch_id IS NULL OR r.verdict NOT IN ('hold', 'leave')
), stayed AS (
    UPDATE postrider_internal.deliveries d
       SET attempts = coalesce(nullif(m.number, 0), d.attempts),
           skipped_offsets = CASE WHEN m.number > 0 THEN m.skipped_offsets ELSE d.skipped_offsets END,
           last_status = CASE WHEN m.number > 0 THEN m.status ELSE d.last_status END,
           last_outcome = coalesce(m.outcome, d.last_outcome),
           first_attempt_at = coalesce(d.first_attempt_at, m.started_at),
           last_attempt_at = coalesce(m.started_at, d.last_attempt_at),
           next_attempt_at = coalesce(m.next_at, d.next_attempt_at),
           job_id = m.next_job, batch_id = CASE WHEN m.next_job IS NULL THEN d.batch_id END, hold = m.hold,
           held_reruns = CASE WHEN m.hold IS NULL THEN d.held_reruns ELSE m.reruns END,
           not_before = CASE WHEN m.hold IS NULL THEN m.not_before ELSE d.not_before END,
           last_hold = CASE WHEN m.hold IS NOT NULL THEN d.last_hold END
      FROM members m
     WHERE d.id = m.id AND m.state IS NULL AND d.id = ANY (ARRAY (SELECT id FROM members WHERE state IS NULL))
), finished AS (
    DELETE FROM postrider_internal.deliveries d USING members m
     WHERE d.id = m.id AND m.state IS NOT NULL AND d.id = ANY (ARRAY (SELECT id FROM members WHERE state IS NOT NULL))
    -- finished.sql
), left_batch AS (
    -- Members that leave a batch which continues, and members that are sent on their own.
    INSERT INTO postrider_internal.left_members (batch_id, delivery_id, left_at, left_after, left_reason)
    SELECT batch_id, id, now(), attempts_made, coalesce(reason, state) FROM members
     WHERE batch_id IS NOT NULL AND (next_job IS NOT NULL OR NOT ends AND state IS NOT NULL)
), -- record_batches.sql
next_jobs AS (
    INSERT INTO postrider_internal.new_jobs
    SELECT j.*
      FROM members m, postrider_internal.attempt_job(
           m.next_job, m.next_at, m.subscription_id, delivery => m.id, number => m.attempts_made + 1) j
     WHERE m.next_job IS NOT NULL
     UNION ALL
    SELECT j.*
      FROM batches b, postrider_internal.attempt_job(
           b.job_id, b.next_attempt_at, b.subscription_id, batch => b.id, number => b.attempts + 1) j
     WHERE b.verdict = 'retry'
), -- ends.sql
, -- dead_letters.sql
SELECT coalesce(array_agg(id), '{}') FROM token
