-- Deletes the deliveries of "members" that end, each by its id or all of a batch, and returns how they end. It is a
-- part of record.sql and record_ends.sql.
finished AS (
    DELETE FROM postrider_internal.deliveries d USING members m
-- begin each
     WHERE d.id = m.id AND m.state IS NOT NULL AND d.id = ANY (ARRAY (SELECT id FROM members WHERE state IS NOT NULL))
-- end
-- begin whole
     WHERE d.batch_id = m.batch_id AND d.batch_id = ANY (ARRAY (SELECT batch_id FROM members))
-- end
    RETURNING d.id, d.subscription_id, d.topic_id, d.event_uuid, d.event_day, d.batch_id, d.reruns,
              d.time_to_live_since, d.redelivered_from, d.operation_id, m.state, m.reason, m.error, m.excerpt,
              m.retry_policy, m.dead_letter_id, @time_scale AS time_scale,
              coalesce(nullif(m.number, 0), d.attempts) AS attempts,
              CASE WHEN m.number > 0 THEN m.status ELSE d.last_status END AS last_status,
              coalesce(m.outcome, d.last_outcome) AS last_outcome,
              coalesce(d.first_attempt_at, m.started_at) AS first_attempt_at,
              coalesce(m.started_at, d.last_attempt_at) AS last_attempt_at
),
