-- How the deliveries of "members" end that a statement deletes. It is a part of record.sql, record_ends.sql and
-- record_whole.sql.
    RETURNING d.id, d.subscription_id, d.topic_id, d.event_uuid, d.event_day, d.batch_id, d.reruns,
              d.time_to_live_since, d.redelivered_from, d.operation_id, m.state, m.reason, m.error, m.excerpt,
              m.retry_policy, m.dead_letter_id, @time_scale::float8 AS time_scale,
              coalesce(nullif(m.number, 0), d.attempts) AS attempts,
              CASE WHEN m.number > 0 THEN m.status ELSE d.last_status END AS last_status,
              coalesce(m.outcome, d.last_outcome) AS last_outcome,
              coalesce(d.first_attempt_at, m.started_at) AS first_attempt_at,
              coalesce(m.started_at, d.last_attempt_at) AS last_attempt_at
