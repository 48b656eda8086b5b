-- Changes the batches of the results. It is a part of record.sql and record_whole.sql.
batches AS (
    UPDATE postrider_internal.batches b
       SET job_id = CASE r.verdict WHEN 'leave' THEN b.job_id
                                   WHEN 'retry' THEN nextval('postrider_internal.river_job_id_seq') END,
           hold = CASE r.verdict WHEN 'hold' THEN r.reason END,
           held_reruns = CASE r.verdict WHEN 'hold' THEN r.reruns ELSE 0 END,
           attempts = coalesce(nullif(r.number, 0), b.attempts),
           last_hold = CASE WHEN r.number > 0 THEN NULL ELSE b.last_hold END,
           last_status = CASE WHEN r.number > 0 THEN r.status ELSE b.last_status END,
           last_outcome = coalesce(r.outcome, b.last_outcome),
           skipped_offsets = CASE WHEN r.number > 0 THEN r.skipped_offsets ELSE b.skipped_offsets END,
           first_attempt_at = coalesce(b.first_attempt_at, r.started_at),
           last_attempt_at = coalesce(r.started_at, b.last_attempt_at),
           next_attempt_at = CASE WHEN r.state IS NULL THEN coalesce(r.next_at, b.next_attempt_at) END,
           not_before = CASE WHEN r.number > 0 THEN r.not_before ELSE b.not_before END,
           bytes = coalesce(r.bytes, b.bytes),
           members = b.members - (SELECT count(*) FROM members m WHERE r.state IS NULL AND m.batch_id = b.id
                                     AND (m.next_job IS NOT NULL OR m.state IS NOT NULL)),
           state = coalesce(r.state, b.state),
           finished_at = CASE WHEN r.state IS NOT NULL THEN now() END
      FROM result r
     WHERE b.id = r.batch_id AND b.id = ANY (ARRAY (SELECT batch_id FROM result WHERE batch_id IS NOT NULL))
    RETURNING b.id, b.subscription_id, b.job_id, b.attempts, b.next_attempt_at, r.verdict
),
