-- +goose Up
-- The views of the SQL contract on events, deliveries, batches and dead letters.
-- +goose StatementBegin
-- When the time to live of a pending delivery ends: policy.Deadline, later by a pause that stops the time to live and
-- has not moved time_to_live_since yet. In seconds, because a day of an interval has 23 or 25 hours in some time zones.
CREATE FUNCTION postrider_internal.expires_at(id bigint, time_to_live_since timestamptz, minutes integer,
    retention_days integer, time_scale integer, p postrider_internal.retry_policies,
    st postrider_internal.event_subscription_states) RETURNS timestamptz
    LANGUAGE sql STABLE PARALLEL SAFE
RETURN time_to_live_since
       + make_interval(secs => least((p.settings ->> 'retryWindowInSeconds')::double precision,
             60.0 * postrider_internal.time_to_live(minutes, retention_days, p)) / time_scale)
       + CASE WHEN st.stop_time_to_live AND st.paused_since IS NOT NULL AND id > st.moved_to
                   AND time_to_live_since < coalesce(st.resumed_at, 'infinity')
              THEN greatest(coalesce(st.resumed_at, now()) - greatest(time_to_live_since, st.paused_since), '0')
              ELSE '0' END;
-- +goose StatementEnd

CREATE VIEW postrider.events AS
SELECT e.id AS system_id, t.name AS topic, e.event_id, e.event_type, e.subject, nullif(e.source, '') AS source,
       e.event_time, e.published_at, e.schema, e.traceparent, e.tracestate, e.matched,
       e.catalog_version AS filter_version,
       CASE WHEN e.erased_at IS NULL THEN convert_from(e.body, 'UTF8') END AS body_text,
       postrider.try_jsonb(e.body) AS body,
       CASE WHEN e.erased_at IS NULL THEN postrider.jsonb_error(e.body)
            ELSE 'erased at ' || e.erased_at END AS body_error,
       octet_length(e.body) AS body_bytes, e.day, e.erased_at, r.edited_from, r.edited_by, r.edit
  FROM postrider_internal.events e
  JOIN postrider_internal.topics t ON t.id = e.topic_id
  LEFT JOIN postrider_internal.repairs r ON r.system_id = e.id
 -- Without events that a redelivery stored again. For day = … PostgreSQL assumes that one event in 200 matches, and
 -- sorts all events for a page.
 WHERE (e.day > (e.published_at AT TIME ZONE 'UTC')::date) IS NOT TRUE;
COMMENT ON VIEW postrider.events IS 'Accepted events, also those that matched no event subscription (matched = 0).';
COMMENT ON COLUMN postrider.events.system_id IS
    'postrider''s own id of the event (aeg-output-event-id); ordered by time of publishing.';
COMMENT ON COLUMN postrider.events.topic IS 'Topic it was published to.';
COMMENT ON COLUMN postrider.events.event_id IS 'The publisher''s id.';
COMMENT ON COLUMN postrider.events.event_type IS 'Event type.';
COMMENT ON COLUMN postrider.events.subject IS 'Subject; empty if the event has none.';
COMMENT ON COLUMN postrider.events.source IS
    'CloudEvents source. Of other events, the foreign topic that a relay topic accepted; NULL = they named none.';
COMMENT ON COLUMN postrider.events.event_time IS
    'The publisher''s time of the event; the time of publishing if the topic''s mapping has none.';
COMMENT ON COLUMN postrider.events.published_at IS 'When it was accepted.';
COMMENT ON COLUMN postrider.events.schema IS 'Schema it was published in.';
COMMENT ON COLUMN postrider.events.traceparent IS
    'Distributed trace it was published in, as W3C''s header; NULL = none.';
COMMENT ON COLUMN postrider.events.tracestate IS 'State of the trace context; NULL = none.';
COMMENT ON COLUMN postrider.events.matched IS
    'How many event subscriptions it matched; NULL = published by SQL and not routed yet.';
COMMENT ON COLUMN postrider.events.filter_version IS
    'Version of the catalog with the filters that were applied; NULL if matched is.';
COMMENT ON COLUMN postrider.events.body_text IS 'The whole event as accepted, as text.';
COMMENT ON COLUMN postrider.events.body IS
    'The whole event as jsonb; NULL if PostgreSQL cannot hold it, see body_error.';
COMMENT ON COLUMN postrider.events.body_error IS 'Why body is NULL.';
COMMENT ON COLUMN postrider.events.body_bytes IS 'Size of the event in bytes.';
COMMENT ON COLUMN postrider.events.day IS 'UTC day of publishing: the partition. Name it in a query over many events.';
COMMENT ON COLUMN postrider.events.erased_at IS
    'When its body and subject were erased, see postrider.erase_event(); NULL = not erased.';
COMMENT ON COLUMN postrider.events.edited_from IS
    'Event that this one is a repair of: its system_id. NULL = it was not edited.';
COMMENT ON COLUMN postrider.events.edited_by IS 'Who edited it, as in postrider.audit; NULL = it was not edited.';
COMMENT ON COLUMN postrider.events.edit IS
    'What the repair changed: a JSON merge patch (RFC 7396) from the original to this event. A member '
    'that was set to null is shown as a removed one. NULL if it was not edited, if one of both is no jsonb, '
    'and after an erasure.';

-- Views join only above this one: so PostgreSQL can read both tables in the order of an index and stop at the end of a
-- page. The state of each is a constant or has a CHECK, so a table that cannot match is left out.
CREATE VIEW postrider_internal.all_deliveries AS
SELECT id, subscription_id, topic_id, event_uuid, event_day, 'pending'::text AS state, hold, NULL::text AS reason,
       attempts, reruns, next_attempt_at, first_attempt_at, last_attempt_at, last_outcome, last_status,
           time_to_live_since,
       NULL::timestamptz AS finished_at, batch_id, batch_id AS open_batch_id, redelivered_from, operation_id,
       NULL::uuid AS dead_letter_id, open, pulled, job_id, created_at
  FROM postrider_internal.deliveries
 UNION ALL
SELECT id, subscription_id, topic_id, event_uuid, event_day, state, NULL, reason, attempts, reruns, NULL,
       first_attempt_at, last_attempt_at, last_outcome, last_status, time_to_live_since, finished_at, batch_id, NULL,
       redelivered_from, operation_id, dead_letter_id, false, false, NULL, NULL
  FROM postrider_internal.delivery_history;
COMMENT ON VIEW postrider_internal.all_deliveries IS 'Pending and finished deliveries, without joins.';

-- One value, which PostgreSQL computes once for each column that uses it. As a join, it made postrider.deliveries a
-- view of more than eight tables, and PostgreSQL planned users' joins with it as scans. As a subquery, it took 10 us
-- per delivery.
CREATE VIEW postrider_internal.current_holds AS
SELECT coalesce(jsonb_object_agg(subscription_id, delivery_hold), '{}') AS holds
  FROM postrider_internal.subscription_holds WHERE delivery_hold <> 'admission';
COMMENT ON VIEW postrider_internal.current_holds IS
    'What deliveries on hold wait for now, by event subscription; those that are absent wait for admission.';

CREATE VIEW postrider_internal.current_deliveries AS
SELECT d.*, coalesce(b.next_attempt_at, d.next_attempt_at) AS due_at,
       CASE WHEN d.hold IS NOT NULL OR b.hold IS NOT NULL
            THEN coalesce((SELECT h.holds FROM postrider_internal.current_holds h) ->> d.subscription_id::text,
                          'admission')
            WHEN d.state = 'pending'
            THEN postrider_internal.hold_ahead(
                 (SELECT h.holds FROM postrider_internal.current_holds h) ->> d.subscription_id::text, d.pulled,
                 coalesce(b.job_id, d.job_id, 0)) END AS current_hold
  FROM postrider_internal.all_deliveries d
  LEFT JOIN postrider_internal.batches b ON b.id = d.open_batch_id;
COMMENT ON VIEW postrider_internal.current_deliveries IS
    'Pending and finished deliveries, with what they wait for now: current_hold, or else due_at.';

CREATE VIEW postrider.deliveries AS
SELECT d.id AS delivery_id, t.name AS topic, s.name AS subscription, e.event_id, e.event_type, e.subject,
       e.published_at, d.event_uuid AS system_id, d.state,
       d.current_hold AS hold,
       d.reason, d.attempts,
           d.reruns,
       CASE WHEN d.state = 'pending' AND d.current_hold IS NULL AND NOT (d.pulled AND d.job_id IS NOT NULL)
            THEN greatest(d.due_at, now()) END AS next_attempt_at,
       d.last_attempt_at, d.last_outcome, d.last_status, d.time_to_live_since, d.finished_at, d.batch_id,
           d.redelivered_from,
       d.dead_letter_id,
       CASE WHEN d.state <> 'pending' THEN NULL
            WHEN d.current_hold IS NOT NULL THEN d.current_hold
            WHEN d.open THEN 'batch'
            WHEN d.pulled AND d.job_id IS NOT NULL THEN 'lock'
            WHEN d.due_at > now() THEN 'next_attempt_at'
            WHEN d.pulled THEN 'consumer'
            ELSE 'worker' END AS waits_for,
       d.subscription_id,
       CASE WHEN d.current_hold = 'probation'
            THEN (SELECT h.until FROM postrider_internal.subscription_holds h
                   WHERE h.subscription_id = d.subscription_id) END AS hold_until,
       CASE WHEN d.state = 'pending'
            THEN (SELECT postrider_internal.expires_at(d.id, d.time_to_live_since,
                         (s.settings #>> '{retryPolicy,eventTimeToLiveInMinutes}')::integer,
                         t.event_retention_in_days,
                         (SELECT coalesce(max(n.time_scale), 1) FROM postrider_internal.nodes n), p, st)
                    FROM postrider_internal.retry_policies p
                    LEFT JOIN postrider_internal.event_subscription_states st ON st.subscription_id = s.id
                   WHERE p.name = s.retry_policy) END AS expires_at,
       d.operation_id, r.edited_from, r.edited_by, r.edit
  FROM postrider_internal.current_deliveries d
  JOIN postrider_internal.event_subscriptions s ON s.id = d.subscription_id
  JOIN postrider_internal.topics t ON t.id = d.topic_id
  LEFT JOIN postrider_internal.events e ON e.id = d.event_uuid AND e.day = d.event_day
  LEFT JOIN postrider_internal.repairs r ON r.system_id = d.event_uuid;
COMMENT ON VIEW postrider.deliveries IS
    'One row for each event and each event subscription that it matched, pending and finished. Redeliveries and '
    'test deliveries have their own rows.';
COMMENT ON COLUMN postrider.deliveries.delivery_id IS 'Id of the delivery.';
COMMENT ON COLUMN postrider.deliveries.topic IS 'Topic of the event.';
COMMENT ON COLUMN postrider.deliveries.subscription IS 'Event subscription that receives it.';
COMMENT ON COLUMN postrider.deliveries.event_id IS
    'The publisher''s id of the event; NULL once the event''s day was dropped.';
COMMENT ON COLUMN postrider.deliveries.event_type IS 'Event type.';
COMMENT ON COLUMN postrider.deliveries.subject IS 'Subject.';
COMMENT ON COLUMN postrider.deliveries.published_at IS
    'When the event was published; NULL once the event''s day was dropped.';
COMMENT ON COLUMN postrider.deliveries.system_id IS 'postrider''s own id of the event.';
COMMENT ON COLUMN postrider.deliveries.state IS 'pending, delivered, dead_lettered, dropped or canceled.';
COMMENT ON COLUMN postrider.deliveries.hold IS
    'What it waits for now without being attempted: paused, not_validated, probation, rate_limited or admission; also '
    'before next_attempt_at, if its event subscription is on hold. NULL = it is not on hold.';
COMMENT ON COLUMN postrider.deliveries.reason IS 'Why it ended dead_lettered, dropped or canceled.';
COMMENT ON COLUMN postrider.deliveries.attempts IS 'Attempts recorded.';
COMMENT ON COLUMN postrider.deliveries.reruns IS
    'Attempts that a crash interrupted and that were repeated without being counted.';
COMMENT ON COLUMN postrider.deliveries.next_attempt_at IS
    'Earliest time of the next attempt: now() if it is due and waits for a worker or a consumer, never a past time. '
    'NULL while on hold, see hold_until, while a consumer has locked it, and when finished.';
COMMENT ON COLUMN postrider.deliveries.hold_until IS
    'While on hold: when the probation allows the next probe, never a past time. NULL for a hold without a known end '
    '(paused, not_validated, admission, rate_limited), and without a hold.';
COMMENT ON COLUMN postrider.deliveries.expires_at IS
    'When the time to live ends, with the current settings of the event subscription and its policy''s retry window. '
    'No attempt begins at this time or later; a policy with expiry next_attempt ends the delivery when its next '
    'attempt is due. It moves on while a pause stops the time to live. NULL when finished.';
COMMENT ON COLUMN postrider.deliveries.operation_id IS
    'Operation that redelivered it, see postrider.operations; NULL = none.';
COMMENT ON COLUMN postrider.deliveries.last_attempt_at IS 'When the last attempt began.';
COMMENT ON COLUMN postrider.deliveries.last_outcome IS 'Outcome of the last attempt.';
COMMENT ON COLUMN postrider.deliveries.last_status IS 'HTTP status of the last attempt; NULL = no response.';
COMMENT ON COLUMN postrider.deliveries.time_to_live_since IS 'When the time to live began: publishing, or redelivery.';
COMMENT ON COLUMN postrider.deliveries.finished_at IS 'When it ended.';
COMMENT ON COLUMN postrider.deliveries.batch_id IS 'Batch that it is in, or was in when it ended; NULL when alone.';
COMMENT ON COLUMN postrider.deliveries.redelivered_from IS
    'Dead letter that it redelivers, the operation that redelivered a past event, or its own system_id if '
    'postrider.redeliver_event() created it; NULL = it began with the publish.';
COMMENT ON COLUMN postrider.deliveries.dead_letter_id IS 'Dead letter it became.';
COMMENT ON COLUMN postrider.deliveries.waits_for IS
    'What a pending delivery waits for: the end of a hold (paused, not_validated, probation, admission, rate_limited), '
    'next_attempt_at, batch (the next one), consumer (to receive it), lock (a consumer has received it), or worker: it '
    'is due and in the queue or in progress.';
COMMENT ON COLUMN postrider.deliveries.subscription_id IS
    'Id of the event subscription, see postrider.event_subscriptions.';
COMMENT ON COLUMN postrider.deliveries.edited_from IS
    'Event that this one is a repair of: its system_id. NULL = its event was not edited.';
COMMENT ON COLUMN postrider.deliveries.edited_by IS 'Who edited it, as in postrider.audit; NULL = it was not edited.';
COMMENT ON COLUMN postrider.deliveries.edit IS
    'What the repair changed: a JSON merge patch (RFC 7396) from the original to its event. A member '
    'that was set to null is shown as a removed one. NULL if it was not edited, if one of both is no jsonb, '
    'and after an erasure.';

CREATE VIEW postrider.delivery_attempts AS
SELECT a.delivery_id, a.batch_id, t.name AS topic, s.name AS subscription, a.number, a.reruns, a.due_at, a.started_at,
       round(a.duration_us / 1000.0, 3) AS duration_ms, round(a.dns_us / 1000.0, 3) AS dns_ms,
       round(a.connect_us / 1000.0, 3) AS connect_ms, round(a.tls_us / 1000.0, 3) AS tls_ms,
       round(a.first_byte_us / 1000.0, 3) AS first_byte_ms, a.status, a.outcome, a.error, a.verdict, a.next_attempt_at,
       a.rule AS why, a.step_ms, a.floor_ms, a.jitter_ms, a.retry_after_ms, a.hold, a.skipped_offsets, a.late,
       postrider.try_text(a.response_headers) AS response_headers,
       postrider.try_text(a.response_excerpt) AS response_excerpt, a.node, a.day,
       round(extract(epoch FROM a.started_at - a.due_at) * 1000, 3) AS waited_ms, a.subscription_id,
       postrider.try_text(a.request_headers) AS request_headers
  FROM postrider_internal.delivery_attempts a
  JOIN postrider_internal.event_subscriptions s ON s.id = a.subscription_id
  JOIN postrider_internal.topics t ON t.id = s.topic_id;
COMMENT ON VIEW postrider.delivery_attempts IS
    'One row for each HTTP request, with its outcome and the reason for the time of the next one. A second row (late) '
    'if the response came after the ack timeout. In pull delivery, one row for each lock that has ended.';
COMMENT ON COLUMN postrider.delivery_attempts.delivery_id IS 'Delivery it belongs to; NULL for a batch.';
COMMENT ON COLUMN postrider.delivery_attempts.batch_id IS 'Batch it sent; NULL for a single delivery.';
COMMENT ON COLUMN postrider.delivery_attempts.topic IS 'Topic.';
COMMENT ON COLUMN postrider.delivery_attempts.subscription IS 'Event subscription.';
COMMENT ON COLUMN postrider.delivery_attempts.number IS
    'First attempt = 1; the header aeg-delivery-count of the request was one less. In pull delivery, deliveryCount.';
COMMENT ON COLUMN postrider.delivery_attempts.reruns IS
    'How many times a crash interrupted this attempt before; such a request may have reached the endpoint.';
COMMENT ON COLUMN postrider.delivery_attempts.due_at IS 'When it was due. hold has what then delayed it.';
COMMENT ON COLUMN postrider.delivery_attempts.started_at IS
    'When the request began, or the consumer received the event (database time).';
COMMENT ON COLUMN postrider.delivery_attempts.duration_ms IS
    'From the start of the request to the response or the failure, milliseconds. The phases (dns_ms, connect_ms, '
    'tls_ms, first_byte_ms) add up to this at most. In pull delivery, the duration of the lock.';
COMMENT ON COLUMN postrider.delivery_attempts.dns_ms IS
    'Duration of the name resolution, milliseconds; NULL on a reused connection.';
COMMENT ON COLUMN postrider.delivery_attempts.connect_ms IS
    'Duration of the TCP connect, milliseconds; NULL on a reused connection.';
COMMENT ON COLUMN postrider.delivery_attempts.tls_ms IS
    'Duration of the TLS handshake, milliseconds; NULL on a reused connection or plain http.';
COMMENT ON COLUMN postrider.delivery_attempts.first_byte_ms IS
    'Duration from the connection being ready to the first byte of the response, milliseconds; NULL without a '
    'response.';
COMMENT ON COLUMN postrider.delivery_attempts.status IS 'HTTP status; NULL = no response.';
COMMENT ON COLUMN postrider.delivery_attempts.outcome IS
    'Result of the attempt, in Event Grid''s words; of a lock Acknowledged, Released, Expired or Rejected.';
COMMENT ON COLUMN postrider.delivery_attempts.error IS 'Why there was no response; of a lock, how it ended.';
COMMENT ON COLUMN postrider.delivery_attempts.verdict IS
    'The policy''s decision: deliver, retry, dead_letter or drop; note: a late response that changed nothing.';
COMMENT ON COLUMN postrider.delivery_attempts.next_attempt_at IS 'Time for which the next attempt was scheduled.';
COMMENT ON COLUMN postrider.delivery_attempts.why IS
    'Reason for the verdict and for the time of the next attempt, in one line. It names the rate limit that this '
    'attempt waited for.';
COMMENT ON COLUMN postrider.delivery_attempts.step_ms IS 'Step of the retry schedule, milliseconds.';
COMMENT ON COLUMN postrider.delivery_attempts.floor_ms IS 'Minimum delay for the status code, in milliseconds.';
COMMENT ON COLUMN postrider.delivery_attempts.jitter_ms IS 'Jitter added, milliseconds.';
COMMENT ON COLUMN postrider.delivery_attempts.retry_after_ms IS 'The endpoint''s Retry-After, in milliseconds.';
COMMENT ON COLUMN postrider.delivery_attempts.hold IS
    'Last hold that delayed this attempt after due_at, as it was when that wait began; NULL = none.';
COMMENT ON COLUMN postrider.delivery_attempts.skipped_offsets IS
    'Offsets of the schedule that have passed without an attempt, during a hold or a slow response.';
COMMENT ON COLUMN postrider.delivery_attempts.late IS
    'A response after the ack timeout had ended the attempt: a second row of the same number. Verdict deliver: a '
    'success that canceled the queued retry. note: a failure, or a success without a queued retry because it was in '
    'progress or the delivery had ended; it changed nothing.';
COMMENT ON COLUMN postrider.delivery_attempts.request_headers IS
    'Headers of the request, first 2 KiB, with *** for the values of secret delivery attributes, of Authorization and '
    'of signatures. NULL if no request was sent, for a late response, and after an erasure.';
COMMENT ON COLUMN postrider.delivery_attempts.response_headers IS 'Headers of the response, first 4 KiB.';
COMMENT ON COLUMN postrider.delivery_attempts.response_excerpt IS 'Body of the response, first 4 KiB.';
COMMENT ON COLUMN postrider.delivery_attempts.node IS
    'Node that sent the request. Of a lock, the node that ended it, or in SQL the login role of the consumer.';
COMMENT ON COLUMN postrider.delivery_attempts.day IS 'UTC day of recording: the partition.';
COMMENT ON COLUMN postrider.delivery_attempts.waited_ms IS 'Time between due_at and started_at, in milliseconds.';
COMMENT ON COLUMN postrider.delivery_attempts.subscription_id IS
    'Id of the event subscription, see postrider.event_subscriptions.';

CREATE VIEW postrider_internal.current_batches AS
SELECT b.*,
       CASE WHEN b.hold IS NOT NULL
            THEN coalesce((SELECT h.holds FROM postrider_internal.current_holds h) ->> b.subscription_id::text,
                          'admission')
            WHEN b.state = 'pending'
            THEN postrider_internal.hold_ahead(
                 (SELECT h.holds FROM postrider_internal.current_holds h) ->> b.subscription_id::text, false,
                 coalesce(b.job_id, 0)) END AS current_hold
  FROM postrider_internal.batches b;
COMMENT ON VIEW postrider_internal.current_batches IS 'Batches, with what they wait for now.';

CREATE VIEW postrider.batches AS
SELECT b.id AS batch_id, t.name AS topic, s.name AS subscription, b.state, b.current_hold AS hold, b.members, b.bytes,
       b.attempts, b.reruns,
       CASE WHEN b.state = 'pending' AND b.current_hold IS NULL
            THEN greatest(b.next_attempt_at, now()) END AS next_attempt_at,
       b.first_attempt_at, b.last_attempt_at, b.last_outcome, b.last_status, b.created_at, b.finished_at,
       b.subscription_id,
       CASE WHEN b.current_hold = 'probation'
            THEN (SELECT h.until FROM postrider_internal.subscription_holds h
                   WHERE h.subscription_id = b.subscription_id) END AS hold_until
  FROM postrider_internal.current_batches b
  JOIN postrider_internal.event_subscriptions s ON s.id = b.subscription_id
  JOIN postrider_internal.topics t ON t.id = s.topic_id;
COMMENT ON VIEW postrider.batches IS 'Deliveries sent together in one request, all or none.';
COMMENT ON COLUMN postrider.batches.batch_id IS 'Id of the batch.';
COMMENT ON COLUMN postrider.batches.topic IS 'Topic.';
COMMENT ON COLUMN postrider.batches.subscription IS 'Event subscription.';
COMMENT ON COLUMN postrider.batches.state IS 'pending, delivered, dead_lettered, dropped or canceled.';
COMMENT ON COLUMN postrider.batches.hold IS
    'What it waits for now without being attempted: paused, not_validated, probation, rate_limited or admission; also '
    'before next_attempt_at, if its event subscription is on hold. NULL = it is not on hold.';
COMMENT ON COLUMN postrider.batches.members IS
    'Number of events in it, without those that left; see postrider.batch_members.';
COMMENT ON COLUMN postrider.batches.bytes IS
    'Size of the last request''s body in bytes; before the first one, an upper limit.';
COMMENT ON COLUMN postrider.batches.attempts IS 'Attempts recorded.';
COMMENT ON COLUMN postrider.batches.reruns IS
    'Attempts that a crash interrupted and that were repeated without being counted.';
COMMENT ON COLUMN postrider.batches.next_attempt_at IS
    'Earliest time of the next attempt: now() if it is due and waits for a worker, never a past time. NULL while on '
    'hold, see hold_until, and when finished.';
COMMENT ON COLUMN postrider.batches.hold_until IS
    'While on hold: when the probation allows the next probe, never a past time. NULL for a hold without a known end '
    '(paused, not_validated, admission, rate_limited), and without a hold.';
COMMENT ON COLUMN postrider.batches.first_attempt_at IS 'When the first attempt began.';
COMMENT ON COLUMN postrider.batches.last_attempt_at IS 'When the last attempt began.';
COMMENT ON COLUMN postrider.batches.last_outcome IS 'Outcome of the last attempt.';
COMMENT ON COLUMN postrider.batches.last_status IS 'HTTP status of the last attempt; NULL = no response.';
COMMENT ON COLUMN postrider.batches.created_at IS 'When the batch was cut.';
COMMENT ON COLUMN postrider.batches.finished_at IS 'When it ended.';
COMMENT ON COLUMN postrider.batches.subscription_id IS
    'Id of the event subscription, see postrider.event_subscriptions.';

-- A member's delivery names its batch, unless it left the batch and continued alone. Both a batch and a delivery can be
-- searched: PostgreSQL begins with the batch's array, or with the delivery's rows.
CREATE VIEW postrider_internal.batch_members AS
SELECT b.id AS batch_id, p.position::integer AS position, m.delivery_id, l.left_at, l.left_after, l.left_reason
  FROM (SELECT id AS delivery_id, batch_id, false AS has_left FROM postrider_internal.all_deliveries
         UNION ALL
        SELECT delivery_id, batch_id, true FROM postrider_internal.left_members) m
  JOIN postrider_internal.batches b ON b.id = m.batch_id
 CROSS JOIN LATERAL unnest(b.delivery_ids) WITH ORDINALITY AS p(delivery_id, position)
  LEFT JOIN postrider_internal.left_members l ON l.delivery_id = m.delivery_id AND l.batch_id = b.id
 WHERE p.delivery_id = m.delivery_id AND (m.has_left OR l.batch_id IS NULL);
COMMENT ON VIEW postrider_internal.batch_members IS 'Members of batches, without their events.';

CREATE VIEW postrider.batch_members AS
SELECT m.batch_id, m.position, m.delivery_id,
       (SELECT e.event_id
          FROM postrider_internal.all_deliveries d
          JOIN postrider_internal.events e ON e.id = d.event_uuid AND e.day = d.event_day
         WHERE d.id = m.delivery_id LIMIT 1) AS event_id,
       m.left_at, m.left_after, m.left_reason
  FROM postrider_internal.batch_members m;
COMMENT ON VIEW postrider.batch_members IS
    'Members of batches, in their order. A member that left its batch stays here, with the reason.';
COMMENT ON COLUMN postrider.batch_members.batch_id IS 'Batch, see postrider.batches.';
COMMENT ON COLUMN postrider.batch_members.position IS
    'Place in the request''s body when all were in it: 1 = first. Each attempt sends them in this order.';
COMMENT ON COLUMN postrider.batch_members.delivery_id IS 'Delivery, see postrider.deliveries.';
COMMENT ON COLUMN postrider.batch_members.event_id IS
    'The publisher''s id of the event; NULL once the event''s day was dropped.';
COMMENT ON COLUMN postrider.batch_members.left_at IS
    'When it left the batch before the batch ended; NULL = it did not.';
COMMENT ON COLUMN postrider.batch_members.left_after IS
    'How many attempts of the batch it was in when it left; NULL = it did not leave.';
COMMENT ON COLUMN postrider.batch_members.left_reason IS
    'Why it left: the reason that it ended with (TimeToLiveExceeded, …). OwnTime: its time to live ends before the '
    'batch''s next attempt, and it continues alone. Unsendable: its event could not be written into the body. '
    'HeaderValue: its dynamic header values differ from those of the first member. TooManyReruns: the batch was '
    'interrupted 20 times, and each member continues alone. RetriedByOperator: postrider.retry_now() attempts it '
    'alone.';

CREATE VIEW postrider.dead_letters AS
SELECT l.id AS dead_letter_id, l.dead_lettered_at, l.topic, l.subscription, l.state, l.reason, l.attempts,
       l.last_outcome, l.last_status, l.last_error, l.event_id, l.event_type, l.subject,
       nullif(l.source, '') AS source, l.event_time,
       l.published_at, l.time_to_live_since, l.first_attempt_at, l.last_attempt_at, l.schema, l.retry_policy,
       l.endpoint_base_url, CASE WHEN l.erased_at IS NULL THEN convert_from(l.body, 'UTF8') END AS body_text,
       postrider.try_jsonb(l.body) AS body,
       CASE WHEN l.erased_at IS NULL THEN postrider.jsonb_error(l.body)
            ELSE 'erased at ' || l.erased_at END AS body_error,
       postrider_internal.event_data(l.schema, l.body) AS data,
       postrider.try_text(l.last_response) AS last_response, l.delivery_id, l.imported_from, l.imported_index,
       l.event_uuid AS system_id, l.redelivered_from, l.redelivered_at, l.redelivery_id,
       CASE WHEN l.redelivery_id IS NOT NULL
            THEN coalesce((SELECT 'pending' FROM postrider_internal.deliveries d WHERE d.id = l.redelivery_id),
                          (SELECT h.state FROM postrider_internal.delivery_history h
                            WHERE h.id = l.redelivery_id AND h.day >= (l.redelivered_at AT TIME ZONE 'UTC')::date
                            LIMIT 1)) END AS redelivery_state,
       l.resolved_at, l.resolved_by, l.resolved_note,
       l.export_state, l.export_due_at, l.export_abandon_at, l.export_attempts,
       l.export_error, l.export_location, l.exported_at, l.erased_at, r.edited_from, r.edited_by, r.edit
  FROM postrider_internal.dead_letters l
  LEFT JOIN postrider_internal.repairs r ON r.system_id = l.event_uuid;
COMMENT ON VIEW postrider.dead_letters IS
    'Deliveries that failed for good, each with the event, its body, the reason, and the number and times of its '
    'attempts. A row outlives event, event subscription and topic.';
COMMENT ON COLUMN postrider.dead_letters.dead_letter_id IS 'Id of the dead letter.';
COMMENT ON COLUMN postrider.dead_letters.dead_lettered_at IS
    'When the delivery became a dead letter, or when it was imported.';
COMMENT ON COLUMN postrider.dead_letters.topic IS 'Topic of the event.';
COMMENT ON COLUMN postrider.dead_letters.subscription IS 'Event subscription whose delivery failed.';
COMMENT ON COLUMN postrider.dead_letters.state IS
    'open: nothing was done with it. redelivered: it has a new delivery, see redelivery_state. resolved: an operator '
    'ended it without one.';
COMMENT ON COLUMN postrider.dead_letters.reason IS
    'deadLetterReason: MaxDeliveryAttemptsExceeded, TimeToLiveExceeded, UndeliverableDueToHttpBadRequest, '
    'UndeliverableDueToClientError, RejectedByConsumer, …';
COMMENT ON COLUMN postrider.dead_letters.attempts IS 'deliveryAttempts: number of attempts.';
COMMENT ON COLUMN postrider.dead_letters.last_outcome IS 'lastDeliveryOutcome: outcome of the last attempt.';
COMMENT ON COLUMN postrider.dead_letters.last_status IS 'HTTP status of the last attempt; NULL = no response.';
COMMENT ON COLUMN postrider.dead_letters.last_error IS
    'Why the last attempt got no response, how the last lock of a consumer ended, or that the time to live ended while '
    'the delivery waited for the rate limit, with its name.';
COMMENT ON COLUMN postrider.dead_letters.event_id IS 'The publisher''s id of the event.';
COMMENT ON COLUMN postrider.dead_letters.event_type IS 'Event type.';
COMMENT ON COLUMN postrider.dead_letters.subject IS 'Subject.';
COMMENT ON COLUMN postrider.dead_letters.source IS
    'CloudEvents source. Of other events, the foreign topic that a relay topic accepted; NULL = they named none.';
COMMENT ON COLUMN postrider.dead_letters.event_time IS 'The publisher''s time of the event.';
COMMENT ON COLUMN postrider.dead_letters.published_at IS
    'publishTime: when it was accepted. Of an imported one without that time, the time of the event.';
COMMENT ON COLUMN postrider.dead_letters.time_to_live_since IS 'When its time to live began.';
COMMENT ON COLUMN postrider.dead_letters.first_attempt_at IS 'When the first attempt began.';
COMMENT ON COLUMN postrider.dead_letters.last_attempt_at IS 'lastDeliveryAttemptTime: when the last attempt began.';
COMMENT ON COLUMN postrider.dead_letters.schema IS 'Schema of the body.';
COMMENT ON COLUMN postrider.dead_letters.retry_policy IS
    'Retry policy of the delivery; empty if it was imported.';
COMMENT ON COLUMN postrider.dead_letters.endpoint_base_url IS
    'Endpoint, without its query string, or target of another destination; empty if it was imported.';
COMMENT ON COLUMN postrider.dead_letters.body_text IS 'The whole event as accepted, as text.';
COMMENT ON COLUMN postrider.dead_letters.body IS
    'The whole event as jsonb; NULL if PostgreSQL cannot hold it, see body_error.';
COMMENT ON COLUMN postrider.dead_letters.body_error IS 'Why body is NULL.';
COMMENT ON COLUMN postrider.dead_letters.data IS
    'The event''s data as jsonb; of a custom event the whole body. NULL for data_base64, without data, and if body is '
    'NULL. Conditions such as data @> ''{"order": {"id": 42}}'' use an index.';
COMMENT ON COLUMN postrider.dead_letters.last_response IS 'Body of the last response, first 4 KiB.';
COMMENT ON COLUMN postrider.dead_letters.delivery_id IS
    'Delivery that became this dead letter; NULL if it was imported.';
COMMENT ON COLUMN postrider.dead_letters.imported_from IS
    'File that it was imported from, such as ORDERS/2026/11/22/9/GUID.json; NULL if postrider dead-lettered it. '
    'Reason, attempts, outcome and times of an imported one are those of the file.';
COMMENT ON COLUMN postrider.dead_letters.imported_index IS
    'Its place in that file, from 0; NULL if postrider dead-lettered it.';
COMMENT ON COLUMN postrider.dead_letters.system_id IS 'postrider''s own id of the event.';
COMMENT ON COLUMN postrider.dead_letters.redelivered_from IS
    'Earlier dead letter whose redelivery failed, with the same event or before its repair; or the operation that '
    'redelivered a past event.';
COMMENT ON COLUMN postrider.dead_letters.redelivered_at IS 'When it was last redelivered; the dead letter stays.';
COMMENT ON COLUMN postrider.dead_letters.redelivery_id IS
    'The delivery of its last redelivery, see postrider.deliveries; NULL = it was not redelivered.';
COMMENT ON COLUMN postrider.dead_letters.redelivery_state IS
    'State of that delivery: pending, delivered, dead_lettered (again), dropped or canceled. NULL = it was not '
    'redelivered, or the delivery is no longer kept.';
COMMENT ON COLUMN postrider.dead_letters.resolved_at IS
    'When an operator resolved it, see postrider.resolve(); NULL = not resolved.';
COMMENT ON COLUMN postrider.dead_letters.resolved_by IS 'Who resolved it; values as in postrider.audit.actor.';
COMMENT ON COLUMN postrider.dead_letters.resolved_note IS 'The note of the operator who resolved it; NULL = none.';
COMMENT ON COLUMN postrider.dead_letters.erased_at IS
    'When body, subject and response were erased, see postrider.erase_event(). It cannot be redelivered. NULL = not '
    'erased.';
COMMENT ON COLUMN postrider.dead_letters.export_state IS
    'State of the export to an external location: pending, exported or abandoned. NULL = no export.';
COMMENT ON COLUMN postrider.dead_letters.export_due_at IS
    'When the export is due: the policy''s dead_letter_delay after the last attempt.';
COMMENT ON COLUMN postrider.dead_letters.export_abandon_at IS
    'Until when the export is retried: the policy''s dead_letter_export_window later.';
COMMENT ON COLUMN postrider.dead_letters.export_attempts IS 'Number of export attempts.';
COMMENT ON COLUMN postrider.dead_letters.export_error IS 'Why the last export attempt failed; NULL = it did not.';
COMMENT ON COLUMN postrider.dead_letters.export_location IS
    'URL of the file that it was exported to, without its query.';
COMMENT ON COLUMN postrider.dead_letters.exported_at IS 'When it was exported; NULL = not exported yet.';
COMMENT ON COLUMN postrider.dead_letters.edited_from IS
    'Event that this one is a repair of: its system_id. NULL = its event was not edited.';
COMMENT ON COLUMN postrider.dead_letters.edited_by IS 'Who edited it, as in postrider.audit; NULL = it was not edited.';
COMMENT ON COLUMN postrider.dead_letters.edit IS
    'What the repair changed: a JSON merge patch (RFC 7396) from the original to its event. A member '
    'that was set to null is shown as a removed one. NULL if it was not edited, if one of both is no jsonb, '
    'and after an erasure.';

-- +goose Down
DROP VIEW postrider.dead_letters, postrider.batch_members, postrider_internal.batch_members, postrider.batches,
    postrider_internal.current_batches, postrider.delivery_attempts, postrider.deliveries,
    postrider_internal.current_deliveries, postrider_internal.current_holds,
    postrider_internal.all_deliveries, postrider.events;
DROP FUNCTION postrider_internal.expires_at;
