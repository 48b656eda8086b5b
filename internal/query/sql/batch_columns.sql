-- The columns of a BatchLine.
v.batch_id, v.topic, v.subscription, v.state, v.hold, v.members, v.bytes, v.attempts, v.reruns, v.next_attempt_at,
       v.hold_until, v.first_attempt_at, v.last_attempt_at, v.last_outcome, v.last_status, v.created_at, v.finished_at
