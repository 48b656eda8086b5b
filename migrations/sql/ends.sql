-- Stores the history and the counts of the deliveries "finished". It is a part of end_deliveries and of the statements
-- that record results.
history AS (
    INSERT INTO postrider_internal.delivery_history (id, day, subscription_id, topic_id, event_uuid, event_day,
           attempts, reruns, last_status, batch_id, time_to_live_since, first_attempt_at, last_attempt_at, finished_at,
               state,
           reason, last_outcome, redelivered_from, operation_id, dead_letter_id)
    SELECT id, (now() AT TIME ZONE 'UTC')::date, subscription_id, topic_id, event_uuid, event_day, attempts,
           reruns, last_status, batch_id, time_to_live_since, first_attempt_at, last_attempt_at, now(), state, reason,
           last_outcome, redelivered_from, operation_id, dead_letter_id
      FROM finished
), ends_counted AS (
    INSERT INTO postrider_internal.rollup_deltas (entries)
    SELECT array_agg(postrider_internal.count_entry(topic_id, subscription_id, state, count, detail,
                                                    operation_id => operation_id))
      FROM (SELECT topic_id, subscription_id, state, operation_id, count(*) AS count,
                   CASE WHEN state = 'delivered' AND attempts = 1 THEN 'FirstAttempt'
                        ELSE coalesce(reason, '') END AS detail
              FROM finished GROUP BY topic_id, subscription_id, state, detail, operation_id) c
    HAVING count(*) > 0
)
