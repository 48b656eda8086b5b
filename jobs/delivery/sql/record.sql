-- T3 records a group of results in one statement. One result is one delivery attempt, of a single delivery or of a
-- batch.
--
-- The job row is the token: everything below is joined to it, so that only the statement that deletes the row records
-- the attempt, moves the deliveries on and inserts the next job. A node that was thought dead and comes back deletes
-- nothing, and so changes nothing. A batch whose members leave it before its request (verdict leave) keeps its row; the
-- row is locked instead.
--
-- The next job is a new row, never the same row with a later time: River marks a finished run completed by its id, and
-- would mark the next run instead (199 of 200 events were lost so in a test).
--
-- A group of single deliveries that all end, none as a dead letter, leaves out the parts "other". Most groups are such
-- ones, and the parts cost a flush 0.4 ms of PostgreSQL's time though they find nothing to do.
WITH input AS (
    SELECT * FROM @results AS r(@results.*)
), gone AS (
    DELETE FROM postrider_internal.river_job j USING input i
     WHERE j.id = ANY (ARRAY (SELECT job_id FROM input WHERE verdict <> 'leave'))
       AND j.id = i.job_id AND j.created_at = i.job_made
    RETURNING j.id
-- begin other
), kept AS MATERIALIZED (
    SELECT j.id FROM postrider_internal.river_job j JOIN input i ON j.id = i.job_id AND j.created_at = i.job_made
     WHERE j.id = ANY (ARRAY (SELECT job_id FROM input WHERE verdict = 'leave')) FOR UPDATE OF j
-- end
), token AS (
    SELECT id FROM gone
-- begin other
     UNION ALL
    SELECT id FROM kept
-- end
), result AS MATERIALIZED (
    SELECT i.*, i.verdict NOT IN ('retry', 'hold', 'leave') AS ends
      FROM input i JOIN token ON token.id = i.job_id
), attempts AS (
    INSERT INTO postrider_internal.delivery_attempts (day, delivery_id, batch_id, subscription_id, job_id, number,
        reruns,
           due_at, started_at, duration_us, dns_us, connect_us, tls_us, first_byte_us, status, outcome, error, verdict,
           next_attempt_at, rule, step_ms, floor_ms, jitter_ms, retry_after_ms, hold, skipped_offsets, node,
           request_headers, response_headers, response_excerpt)
    SELECT (now() AT TIME ZONE 'UTC')::date, delivery_id, batch_id, subscription_id, job_id, number, reruns,
           due_at, started_at, duration_us, dns_us, connect_us, tls_us, first_byte_us, status, outcome, error, verdict,
           next_at, rule, step_ms, floor_ms, jitter_ms, retry_after_ms, last_hold, skipped_offsets, @node,
           request_headers, headers, excerpt
      FROM result WHERE number > 0
), attempts_counted AS (
    INSERT INTO postrider_internal.rollup_deltas (slot, entries)
    SELECT (topic_id + subscription_id) % 8,
           array_agg(ROW (date_trunc('minute', now()), topic_id, subscription_id, 'attempt', outcome, bucket, count,
                          NULL)::postrider_internal.rollup_entry)
      FROM (SELECT coalesce((SELECT s.topic_id FROM postrider_internal.event_subscriptions s
          WHERE s.id = subscription_id), 0)
                       AS topic_id, subscription_id, outcome, count(*) AS count,
                   width_bucket(duration_us,
                       '{5000, 10000, 25000, 50000, 100000, 250000, 500000, 1000000, 2500000, 5000000,
                                               10000000, 30000000, 60000000}'::bigint[]) AS bucket
              FROM result WHERE number > 0 GROUP BY subscription_id, outcome, bucket) c
     GROUP BY 1
), members AS MATERIALIZED (
    -- The deliveries that change: a single delivery always; of a batch those with a verdict of their own, and all if
    -- the batch was sent or ends. A retry of a single delivery, and of a member on its own, needs a job.
    SELECT d.id, d.made, r.batch_id, r.subscription_id, r.retry_policy, r.number, r.reruns, r.status, r.outcome,
           r.error,
           r.excerpt, r.started_at, r.skipped_offsets, r.ends, coalesce(f.next_at, r.next_at) AS next_at,
           CASE WHEN f.delivery_id IS NULL THEN r.reason ELSE f.reason END AS reason, f.dead_letter_id,
           CASE WHEN f.delivery_id IS NOT NULL THEN f.not_before
                WHEN r.batch_id IS NULL THEN r.not_before END AS not_before,
           CASE WHEN coalesce(f.verdict, CASE WHEN r.batch_id IS NULL THEN r.verdict END) = 'retry'
                THEN nextval('postrider_internal.river_job_id_seq') END AS next_job,
           CASE WHEN r.batch_id IS NULL AND r.verdict = 'hold' THEN r.reason END AS hold,
           CASE coalesce(f.verdict, r.verdict) WHEN 'deliver' THEN 'delivered' WHEN 'dead_letter' THEN 'dead_lettered'
                WHEN 'drop' THEN 'dropped' WHEN 'cancel' THEN 'canceled' END AS state
      FROM result r
     CROSS JOIN LATERAL (
           SELECT r.delivery_id AS id, r.number AS made WHERE r.batch_id IS NULL
-- begin other
            UNION ALL
           SELECT d.id, CASE WHEN r.number > 0 THEN r.number ELSE d.attempts END
             FROM postrider_internal.deliveries d WHERE d.batch_id = r.batch_id OFFSET 0
-- end
           ) d
      LEFT JOIN @fates AS f(@fates.*) ON f.job_id = r.job_id AND f.delivery_id = d.id
     WHERE f.delivery_id IS NOT NULL OR r.batch_id IS NULL OR r.verdict NOT IN ('hold', 'leave')
-- begin other
), stayed AS (
    UPDATE postrider_internal.deliveries d
       SET attempts = CASE WHEN m.number > 0 THEN m.number ELSE d.attempts END,
           skipped_offsets = CASE WHEN m.number > 0 THEN m.skipped_offsets ELSE d.skipped_offsets END,
           last_status = CASE WHEN m.number > 0 THEN m.status ELSE d.last_status END,
           last_outcome = CASE WHEN m.number > 0 THEN m.outcome ELSE d.last_outcome END,
           first_attempt_at = coalesce(d.first_attempt_at, CASE WHEN m.number > 0 THEN m.started_at END),
           last_attempt_at = CASE WHEN m.number > 0 THEN m.started_at ELSE d.last_attempt_at END,
           next_attempt_at = coalesce(m.next_at, d.next_attempt_at),
           job_id = m.next_job, batch_id = CASE WHEN m.next_job IS NULL THEN d.batch_id END, hold = m.hold,
           held_reruns = CASE WHEN m.hold IS NULL THEN d.held_reruns ELSE m.reruns END,
           not_before = CASE WHEN m.hold IS NULL THEN m.not_before ELSE d.not_before END,
           last_hold = CASE WHEN m.hold IS NOT NULL THEN d.last_hold END
      FROM members m
     WHERE d.id = m.id AND m.state IS NULL AND d.id = ANY (ARRAY (SELECT id FROM members WHERE state IS NULL))
-- end
), finished AS (
    DELETE FROM postrider_internal.deliveries d USING members m
     WHERE d.id = m.id AND m.state IS NOT NULL AND d.id = ANY (ARRAY (SELECT id FROM members WHERE state IS NOT NULL))
    RETURNING d.id, d.subscription_id, d.topic_id, d.event_uuid, d.event_day, d.batch_id, d.reruns,
        d.time_to_live_since,
              d.redelivered_from, d.operation_id, m.state, m.reason, m.error, m.excerpt, m.retry_policy,
              m.dead_letter_id, @time_scale AS time_scale,
              CASE WHEN m.number > 0 THEN m.number ELSE d.attempts END AS attempts,
              CASE WHEN m.number > 0 THEN m.status ELSE d.last_status END AS last_status,
              CASE WHEN m.number > 0 THEN m.outcome ELSE d.last_outcome END AS last_outcome,
              coalesce(d.first_attempt_at, CASE WHEN m.number > 0 THEN m.started_at END) AS first_attempt_at,
              CASE WHEN m.number > 0 THEN m.started_at ELSE d.last_attempt_at END AS last_attempt_at
-- begin other
), left_batch AS (
    -- Members that leave a batch which goes on, and members that are sent on their own.
    UPDATE postrider_internal.batch_members b
       SET left_at = now(), left_after = m.made, left_reason = coalesce(m.reason, m.state)
      FROM members m
     WHERE b.batch_id = m.batch_id AND b.batch_id = ANY (ARRAY (SELECT batch_id FROM result WHERE batch_id IS NOT NULL))
       AND b.delivery_id = m.id AND b.delivery_id = ANY (ARRAY (SELECT id FROM members WHERE batch_id IS NOT NULL))
       AND (m.next_job IS NOT NULL OR NOT m.ends AND m.state IS NOT NULL)
), batches AS (
    UPDATE postrider_internal.batches b
       SET job_id = CASE r.verdict WHEN 'leave' THEN b.job_id WHEN 'retry'
           THEN nextval('postrider_internal.river_job_id_seq') END,
           attempts = CASE WHEN r.number > 0 THEN r.number ELSE b.attempts END,
           hold = CASE r.verdict WHEN 'hold' THEN r.reason END,
           held_reruns = CASE r.verdict WHEN 'hold' THEN r.reruns ELSE 0 END,
           last_hold = CASE WHEN r.number > 0 THEN NULL ELSE b.last_hold END,
           last_status = CASE WHEN r.number > 0 THEN r.status ELSE b.last_status END,
           last_outcome = CASE WHEN r.number > 0 THEN r.outcome ELSE b.last_outcome END,
           skipped_offsets = CASE WHEN r.number > 0 THEN r.skipped_offsets ELSE b.skipped_offsets END,
           first_attempt_at = coalesce(b.first_attempt_at, CASE WHEN r.number > 0 THEN r.started_at END),
           last_attempt_at = CASE WHEN r.number > 0 THEN r.started_at ELSE b.last_attempt_at END,
           next_attempt_at = CASE WHEN r.ends THEN NULL ELSE coalesce(r.next_at, b.next_attempt_at) END,
           not_before = CASE WHEN r.number > 0 THEN r.not_before ELSE b.not_before END,
           bytes = coalesce(r.bytes, b.bytes),
           members = b.members - CASE WHEN r.ends THEN 0 ELSE (SELECT count(*) FROM members m WHERE m.batch_id = b.id
                                                                  AND (m.next_job IS NOT NULL OR m.state IS NOT NULL))
                                                                      END,
           state = CASE r.verdict WHEN 'deliver' THEN 'delivered' WHEN 'dead_letter' THEN 'dead_lettered'
                        WHEN 'drop' THEN 'dropped' WHEN 'cancel' THEN 'canceled' ELSE b.state END,
           finished_at = CASE WHEN r.ends THEN now() END
      FROM result r
     WHERE b.id = r.batch_id AND b.id = ANY (ARRAY (SELECT batch_id FROM result WHERE batch_id IS NOT NULL))
    RETURNING b.id, b.subscription_id, b.job_id, b.attempts, b.next_attempt_at, r.verdict
), next_jobs AS (
    INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT id, postrider_internal.job_state(at),
           args, kind, 'deliveries', 1, 1000, at
      FROM (SELECT next_job AS id, jsonb_build_object('d', id, 's', subscription_id, 'n', made + 1) AS args,
                   'deliver' AS kind, next_at AS at
              FROM members WHERE next_job IS NOT NULL
             UNION ALL
            SELECT job_id, jsonb_build_object('s', subscription_id, 'b', id, 'n', attempts + 1), 'batch',
                   next_attempt_at
              FROM batches WHERE verdict = 'retry') jobs
-- end
), -- ends.sql
SELECT coalesce(array_agg(id), '{}') FROM token
