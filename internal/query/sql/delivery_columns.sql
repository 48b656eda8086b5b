-- The columns of a DeliveryLine.
d.delivery_id, d.topic, d.subscription, d.event_id, d.event_type, d.subject, d.published_at, d.system_id, d.state,
    d.hold,
       d.reason, d.attempts, d.reruns, d.next_attempt_at, d.hold_until, d.expires_at, d.last_attempt_at, d.last_outcome,
       d.last_status, d.time_to_live_since, d.finished_at, d.batch_id, d.redelivered_from, d.operation_id,
           d.dead_letter_id, d.edited_from, d.edited_by, d.edit
