-- The columns of a DeadLetter, without its bodies.
dead_letter_id, dead_lettered_at, topic, subscription, state, reason, attempts, last_outcome, last_status, last_error,
       event_id, event_type, subject, source, event_time, published_at, time_to_live_since, first_attempt_at,
           last_attempt_at,
       schema, retry_policy, endpoint_base_url, delivery_id, imported_from, imported_index, system_id, redelivered_from,
       redelivered_at,
       redelivery_id, redelivery_state, resolved_at, resolved_by, resolved_note,
       edited_from, edited_by
