-- Lists a page of deliveries, pending and finished, the newest first: along the index of their ids, of the event
-- subscriptions' ids (@by_subscription) or of their events' ids (@timed). Only the rows of the page are joined: the
-- view postrider.deliveries joins first.
SELECT d.id AS delivery_id, t.name AS topic, s.name AS subscription, e.event_id, e.event_type, e.subject,
    e.published_at,
       d.event_uuid AS system_id, d.state, c.hold, d.reason, d.attempts, d.reruns,
       CASE WHEN d.state = 'pending' AND c.hold IS NULL AND NOT (d.pulled AND d.job_id IS NOT NULL)
            THEN greatest(coalesce(b.next_attempt_at, d.next_attempt_at), now()) END AS next_attempt_at,
       CASE WHEN d.state = 'pending'
            THEN postrider_internal.expires_at(d.id, d.time_to_live_since,
                 (s.settings #>> '{retryPolicy,eventTimeToLiveInMinutes}')::integer,
                 t.event_retention_in_days, (SELECT coalesce(max(n.time_scale), 1) FROM postrider_internal.nodes n),
                 p, st) END AS expires_at,
       CASE WHEN c.hold = 'probation' THEN h.until END AS hold_until,
       d.last_attempt_at, d.last_outcome, d.last_status, d.time_to_live_since, d.finished_at, d.batch_id,
           d.redelivered_from,
       d.operation_id, d.dead_letter_id, o.edited_from, o.edited_by, NULL::jsonb AS edit
  FROM (SELECT d.*, row_number() OVER (ORDER BY CASE WHEN @timed AND @backwards THEN d.event_uuid END,
                                                CASE WHEN @backwards THEN d.id END,
                                                CASE WHEN @timed THEN d.event_uuid END DESC, d.id DESC) AS place
          FROM unnest(CASE WHEN @by_subscription THEN @subscriptions::bigint[] ELSE '{0}' END) AS one(id)
         CROSS JOIN LATERAL (
               SELECT *
                 FROM postrider_internal.all_deliveries d -- deliveries_matching.sql
                ORDER BY CASE WHEN @timed AND @backwards THEN d.event_uuid END, CASE WHEN @backwards THEN d.id END,
                         CASE WHEN @timed THEN d.event_uuid END DESC, d.id DESC
                LIMIT @limit) d
         ORDER BY place
         LIMIT @limit) d
  JOIN postrider_internal.event_subscriptions s ON s.id = d.subscription_id
  JOIN postrider_internal.topics t ON t.id = d.topic_id
  LEFT JOIN postrider_internal.events e ON e.id = d.event_uuid AND e.day = d.event_day
  LEFT JOIN postrider_internal.batches b ON b.id = d.open_batch_id
  JOIN postrider_internal.subscription_holds h ON h.subscription_id = d.subscription_id
 CROSS JOIN LATERAL (
       SELECT CASE WHEN d.hold IS NOT NULL OR b.hold IS NOT NULL THEN h.delivery_hold
                   WHEN d.state = 'pending'
                   THEN postrider_internal.hold_ahead(h.delivery_hold, d.pulled, coalesce(b.job_id, d.job_id, 0))
              END AS hold) c
  JOIN postrider_internal.retry_policies p ON p.name = s.retry_policy
  LEFT JOIN postrider_internal.event_subscription_states st ON st.subscription_id = s.id
  LEFT JOIN postrider_internal.repairs o ON o.system_id = d.event_uuid
 ORDER BY d.place
