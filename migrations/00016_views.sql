-- +goose Up
-- The views of the SQL contract. Audit, handshakes and access have theirs beside their tables.

-- +goose StatementBegin
-- When the time to live of a pending delivery ends: policy.Deadline, later by a pause that stops the time to live and
-- has not moved owed_since yet. In seconds, because a day of an interval has 23 or 25 hours in some time zones.
CREATE FUNCTION postrider_internal.expires_at(id bigint, owed_since timestamptz, minutes integer,
    retention_days integer,
    time_scale integer, p postrider_internal.retry_policies, st postrider_internal.event_subscription_states)
    RETURNS timestamptz
    LANGUAGE sql STABLE PARALLEL SAFE AS $$
SELECT owed_since
       + make_interval(secs => extract(epoch
           FROM least(nullif(p.retry_window, '0'), make_interval(days => retention_days),
             CASE WHEN minutes IS NULL THEN p.default_ttl
                 ELSE least(greatest(make_interval(mins => minutes), p.min_ttl), p.max_ttl) END))
             ::double precision / time_scale)
       + CASE WHEN st.stop_time_to_live AND st.paused_since IS NOT NULL AND id > st.moved_to
                    AND owed_since < coalesce(st.resumed_at, 'infinity')
              THEN greatest(coalesce(st.resumed_at, now()) - greatest(owed_since, st.paused_since), '0')
              ELSE '0' END $$;
-- +goose StatementEnd

-- Latency buckets are an array with one element, whose index is that of its bucket.
CREATE VIEW postrider_internal.unmerged_counts AS
SELECT e.minute, e.topic_id, e.subscription_id, e.kind, e.detail, e.count, e.operation_id,
       CASE WHEN e.bucket IS NOT NULL THEN array_fill(e.count, ARRAY [1], ARRAY [e.bucket + 1]) END AS latency_buckets
  FROM postrider_internal.rollup_deltas d
 CROSS JOIN LATERAL unnest(d.entries) AS e;
COMMENT ON VIEW postrider_internal.unmerged_counts IS 'Counts that were not added to postrider_internal.rollups yet.';

CREATE VIEW postrider.topics AS
SELECT t.name AS topic, t.kind, t.input_schema, t.input_schema_mapping, t.created_at, t.updated_at,
       (SELECT count(*) FROM postrider_internal.event_subscriptions s WHERE s.topic_id = t.id
           AND s.deleted_at IS NULL) AS subscriptions,
       t.event_retention_in_days,
       t.duplicate_detection_window_in_minutes
  FROM postrider_internal.topics t
 WHERE t.deleted_at IS NULL;
COMMENT ON VIEW postrider.topics IS 'Topics that publishers post events to. Access keys are never shown.';
COMMENT ON COLUMN postrider.topics.topic IS 'Name of the topic, unique among topics that exist.';
COMMENT ON COLUMN postrider.topics.kind IS 'basic (custom topic) or namespace (namespace topic).';
COMMENT ON COLUMN postrider.topics.input_schema IS
    'What publishers send: EventGridSchema, CloudEventSchemaV1_0 or CustomEventSchema.';
COMMENT ON COLUMN postrider.topics.input_schema_mapping IS
    'Of CustomEventSchema: which fields of an event are its id, type, subject and so on. Otherwise NULL.';
COMMENT ON COLUMN postrider.topics.created_at IS 'When the topic was created.';
COMMENT ON COLUMN postrider.topics.updated_at IS 'When the topic was last changed.';
COMMENT ON COLUMN postrider.topics.subscriptions IS 'How many event subscriptions the topic has now.';
COMMENT ON COLUMN postrider.topics.event_retention_in_days IS
    'For a namespace topic: the limit of every event subscription''s time to live. Otherwise NULL.';
COMMENT ON COLUMN postrider.topics.duplicate_detection_window_in_minutes IS
    'For so many minutes an event of the same source and id is not stored again; NULL = it is.';

CREATE VIEW postrider.event_subscriptions AS
SELECT t.name AS topic, s.name AS subscription, s.endpoint_base_url, s.endpoint_kind, s.event_delivery_schema,
       s.retry_policy,
       CASE WHEN s.max_delivery_attempts IS NULL THEN p.default_max_attempts
            ELSE least(greatest(s.max_delivery_attempts, p.min_max_attempts),
                p.max_max_attempts) END AS max_delivery_attempts,
       (postrider_internal.seconds(least(CASE WHEN s.event_time_to_live_in_minutes IS NULL THEN p.default_ttl
            ELSE least(greatest(make_interval(mins => s.event_time_to_live_in_minutes), p.min_ttl), p.max_ttl) END,
            make_interval(days => t.event_retention_in_days))) / 60)::integer AS event_time_to_live_in_minutes,
       s.filter::jsonb AS filter,
       coalesce(s.dead_letter_destination, jsonb_build_object('endpointType',
            CASE WHEN s.behavior = 'documented' AND p.dead_letter_default = 'none' THEN 'None' ELSE 'Rows' END))
                AS dead_letter_destination,
       s.behavior, CASE WHEN s.preferred_batch_size_in_kilobytes IS NULL THEN coalesce(s.max_events_per_batch, 1)
           ELSE coalesce(s.max_events_per_batch, 10) END AS max_events_per_batch,
       coalesce(s.preferred_batch_size_in_kilobytes, 64) AS preferred_batch_size_in_kilobytes,
       s.max_concurrent_deliveries, s.provisioning_state,
       h.hold, h.cause AS hold_cause, h.since AS hold_since, CASE h.hold WHEN 'probation'
           THEN greatest(h.until, now()) END AS hold_until, h.probing,
       (SELECT count(*) FROM postrider_internal.deliveries d WHERE d.subscription_id = s.id AND d.hold IS NOT NULL)
       + (SELECT coalesce(sum(b.members), 0)::bigint FROM postrider_internal.batches b WHERE b.subscription_id = s.id
           AND b.hold IS NOT NULL) AS held_deliveries,
       s.signing_sealed IS NOT NULL AS signed,
       s.endpoint_validation,
       s.labels, s.created_at, s.updated_at,
       coalesce(s.honor_retry_after, s.behavior = 'safe' OR p.honor_retry_after) AS honor_retry_after,
       coalesce(s.probation_action, CASE s.behavior WHEN 'safe' THEN 'hold' ELSE p.probation_action END)
           AS probation_action,
       coalesce(s.retry_transport_errors, s.behavior = 'safe' OR p.retry_transport_errors) AS retry_transport_errors,
       s.expiration_time_utc,
       coalesce(s.connection ->> 'minimumTlsVersionAllowed', '1.2') AS minimum_tls_version_allowed,
       coalesce(s.connection ? 'certificateAuthorities', false) AS own_certificate_authorities,
       coalesce(s.connection ? 'clientCertificate', false) AS client_certificate,
       s.connection #>> '{oauth2,tokenUrl}' AS oauth2_token_url,
       s.id AS subscription_id
  FROM postrider_internal.event_subscriptions s
  JOIN postrider_internal.topics t ON t.id = s.topic_id
  JOIN postrider_internal.retry_policies p ON p.name = s.retry_policy
  JOIN postrider_internal.subscription_holds h ON h.subscription_id = s.id
 WHERE s.deleted_at IS NULL;
COMMENT ON VIEW postrider.event_subscriptions IS
    'Event subscriptions with their effective settings. Endpoints are shown without their query string, which often '
    'holds a secret.';
COMMENT ON COLUMN postrider.event_subscriptions.topic IS 'Topic whose events it receives.';
COMMENT ON COLUMN postrider.event_subscriptions.subscription IS
    'Name of the event subscription, unique within its topic.';
COMMENT ON COLUMN postrider.event_subscriptions.endpoint_base_url IS
    'Endpoint that receives the events, without the query string.';
COMMENT ON COLUMN postrider.event_subscriptions.endpoint_kind IS
    'webhook or azure-resource: which column of the policy''s status-code table applies.';
COMMENT ON COLUMN postrider.event_subscriptions.event_delivery_schema IS 'Shape of the delivered events.';
COMMENT ON COLUMN postrider.event_subscriptions.retry_policy IS
    'Name of the retry policy, see postrider.retry_policies.';
COMMENT ON COLUMN postrider.event_subscriptions.max_delivery_attempts IS 'Effective limit of attempts; NULL = none.';
COMMENT ON COLUMN postrider.event_subscriptions.event_time_to_live_in_minutes IS
    'Effective time to live of an event in minutes.';
COMMENT ON COLUMN postrider.event_subscriptions.filter IS 'Which events it matches; {} = all.';
COMMENT ON COLUMN postrider.event_subscriptions.dead_letter_destination IS
    'Effective dead-letter destination: endpointType Rows or None; Blob or StorageBlob with its properties if dead '
    'letters are also exported.';
COMMENT ON COLUMN postrider.event_subscriptions.behavior IS
    'safe, or documented: the policy''s columns taken literally; those of the built-in policies are Event Grid''s own.';
COMMENT ON COLUMN postrider.event_subscriptions.honor_retry_after IS
    'Effective honorRetryAfter: an endpoint''s Retry-After puts off the next attempt.';
COMMENT ON COLUMN postrider.event_subscriptions.probation_action IS
    'Effective probationAction, of events whose turn comes during a probation: hold, or documented: some end without '
    'an attempt.';
COMMENT ON COLUMN postrider.event_subscriptions.retry_transport_errors IS
    'Effective retryTransportErrors: without a response another attempt is made, even if the policy''s table says '
    'never.';
COMMENT ON COLUMN postrider.event_subscriptions.expiration_time_utc IS
    'When it gets no more events and is deleted; NULL = never.';
COMMENT ON COLUMN postrider.event_subscriptions.minimum_tls_version_allowed IS
    'The least version of TLS that its endpoint may speak: 1.2 or 1.3.';
COMMENT ON COLUMN postrider.event_subscriptions.own_certificate_authorities IS
    'Whether the endpoint''s certificate must come from authorities of the event subscription''s own, instead of those '
    'that the system trusts.';
COMMENT ON COLUMN postrider.event_subscriptions.client_certificate IS
    'Whether postrider shows its endpoint a client certificate.';
COMMENT ON COLUMN postrider.event_subscriptions.oauth2_token_url IS
    'Source of the access tokens of its deliveries (OAuth 2.0 client credentials); NULL = no tokens.';
COMMENT ON COLUMN postrider.event_subscriptions.subscription_id IS
    'postrider''s id of the event subscription. One that is created again with the same name gets another id. Other '
    'views have it too: a query by it is fast.';
COMMENT ON COLUMN postrider.event_subscriptions.max_events_per_batch IS
    'Effective maxEventsPerBatch; 1 = every event by itself. No batch is larger, and none waits to become so large.';
COMMENT ON COLUMN postrider.event_subscriptions.preferred_batch_size_in_kilobytes IS
    'Effective preferredBatchSizeInKilobytes: a target; one larger event goes alone.';
COMMENT ON COLUMN postrider.event_subscriptions.max_concurrent_deliveries IS
    'maxConcurrentDeliveries as set: requests in flight at most, shared by the nodes; NULL = as many as the endpoint '
    'keeps up with.';
COMMENT ON COLUMN postrider.event_subscriptions.provisioning_state IS
    'Event Grid''s provisioning state. Succeeded: ready for deliveries. Creating, Updating: the validation handshake '
    'is in progress. AwaitingManualAction: a person has to open validationUrl. Failed: the endpoint was not '
    'validated.';
COMMENT ON COLUMN postrider.event_subscriptions.hold IS
    'Why its deliveries wait without being attempted; NULL = they do not.';
COMMENT ON COLUMN postrider.event_subscriptions.hold_cause IS 'Of a probation: the outcome of the last failure.';
COMMENT ON COLUMN postrider.event_subscriptions.hold_since IS 'When the hold began.';
COMMENT ON COLUMN postrider.event_subscriptions.hold_until IS
    'Of a probation: when one delivery, the probe, is let through next, never a past time. Its success ends the hold. '
    'NULL = an operator or a handshake ends it.';
COMMENT ON COLUMN postrider.event_subscriptions.probing IS 'Whether the probe is in progress.';
COMMENT ON COLUMN postrider.event_subscriptions.held_deliveries IS 'How many deliveries wait on hold now.';
COMMENT ON COLUMN postrider.event_subscriptions.signed IS
    'Whether its deliveries are signed (Standard Webhooks). The secrets are never shown.';
COMMENT ON COLUMN postrider.event_subscriptions.endpoint_validation IS
    'required: the endpoint must pass the validation handshake before the first delivery, see postrider.handshakes. '
    'skip: an operator skipped it.';
COMMENT ON COLUMN postrider.event_subscriptions.labels IS 'Free labels, as they were set.';
COMMENT ON COLUMN postrider.event_subscriptions.created_at IS 'When it was created.';
COMMENT ON COLUMN postrider.event_subscriptions.updated_at IS 'When its settings were last changed.';

CREATE VIEW postrider.events AS
SELECT e.id AS system_id, t.name AS topic, e.event_id, e.event_type, e.subject, nullif(e.source, '') AS source,
       e.event_time, e.published_at,
       e.schema, e.traceparent, e.tracestate, e.matched,
       e.catalogue_version AS filter_version,
       CASE WHEN e.erased_at IS NULL THEN convert_from(e.body, 'UTF8') END AS body_text,
           postrider.try_jsonb(e.body) AS body,
       CASE WHEN e.erased_at IS NULL THEN postrider.jsonb_error(e.body)
           ELSE 'erased at ' || e.erased_at END AS body_error, octet_length(e.body) AS body_bytes, e.day, e.erased_at
  FROM postrider_internal.events e
  JOIN postrider_internal.topics t ON t.id = e.topic_id
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
COMMENT ON COLUMN postrider.events.source IS 'CloudEvents source; NULL in the Event Grid schema.';
COMMENT ON COLUMN postrider.events.event_time IS
    'The publisher''s time of the event; the time of publishing if the topic''s mapping has none.';
COMMENT ON COLUMN postrider.events.published_at IS 'When it was accepted.';
COMMENT ON COLUMN postrider.events.schema IS 'Schema it was published in.';
COMMENT ON COLUMN postrider.events.traceparent IS
    'Distributed trace it was published in, as W3C''s header; NULL = none.';
COMMENT ON COLUMN postrider.events.tracestate IS 'What goes with traceparent; NULL = nothing.';
COMMENT ON COLUMN postrider.events.matched IS
    'How many event subscriptions it matched; NULL = published by SQL and not routed yet.';
COMMENT ON COLUMN postrider.events.filter_version IS
    'Version of the catalogue that its filters were taken from; NULL as matched is.';
COMMENT ON COLUMN postrider.events.body_text IS 'The whole event as accepted, as text.';
COMMENT ON COLUMN postrider.events.body IS
    'The whole event as jsonb; NULL if PostgreSQL cannot hold it, see body_error.';
COMMENT ON COLUMN postrider.events.body_error IS 'Why body is NULL.';
COMMENT ON COLUMN postrider.events.body_bytes IS 'Size of the event in bytes.';
COMMENT ON COLUMN postrider.events.day IS 'UTC day of publishing: the partition. Name it in a query over many events.';
COMMENT ON COLUMN postrider.events.erased_at IS
    'When its body and subject were erased, see postrider.erase_event(); NULL = they were not.';

-- Views join only above this one: so PostgreSQL can read both tables in the order of an index and stop at the end of a
-- page. The state of each is a constant or has a CHECK, so a table that cannot match is left out.
CREATE VIEW postrider_internal.all_deliveries AS
SELECT id, subscription_id, topic_id, event_uuid, event_day, 'pending'::text AS state, hold, NULL::text AS reason,
       attempts, reruns, next_attempt_at, first_attempt_at, last_attempt_at, last_outcome, last_status, owed_since,
       NULL::timestamptz AS finished_at, batch_id, batch_id AS open_batch_id, redelivered_from, operation_id,
       NULL::uuid AS dead_letter_id, open, job_id
  FROM postrider_internal.deliveries
 UNION ALL
SELECT id, subscription_id, topic_id, event_uuid, event_day, state, NULL, reason, attempts, reruns, NULL,
       first_attempt_at, last_attempt_at, last_outcome, last_status, owed_since, finished_at, batch_id, NULL,
       redelivered_from, operation_id, dead_letter_id, false, NULL
  FROM postrider_internal.delivery_history;
COMMENT ON VIEW postrider_internal.all_deliveries IS 'Pending and finished deliveries, without joins.';

CREATE VIEW postrider.deliveries AS
SELECT d.id AS delivery_id, t.name AS topic, s.name AS subscription, e.event_id, e.event_type, e.subject,
       d.event_uuid AS system_id,
       d.state, coalesce(d.hold, b.hold) AS hold, d.reason, d.attempts, d.reruns,
       CASE WHEN d.state = 'pending' AND coalesce(d.hold, b.hold) IS NULL
            THEN greatest(coalesce(b.next_attempt_at, d.next_attempt_at), now()) END AS next_attempt_at,
                d.last_attempt_at, d.last_outcome, d.last_status,
       d.owed_since, d.finished_at, d.batch_id, d.redelivered_from, d.dead_letter_id,
       CASE WHEN d.state <> 'pending' THEN NULL
            WHEN coalesce(d.hold, b.hold) IS NOT NULL THEN coalesce(d.hold, b.hold)
            WHEN d.open THEN 'batch'
            WHEN coalesce(b.next_attempt_at, d.next_attempt_at) > now() THEN 'next_attempt_at'
            ELSE 'worker' END AS waits_for,
       d.subscription_id,
       CASE WHEN coalesce(d.hold, b.hold) = 'probation' THEN (SELECT v.hold_until FROM postrider.event_subscriptions v
           WHERE v.subscription_id = s.id) END AS hold_until,
       CASE WHEN d.state = 'pending' THEN (
            SELECT postrider_internal.expires_at(d.id, d.owed_since, s.event_time_to_live_in_minutes,
                t.event_retention_in_days,
                   (SELECT coalesce(max(n.time_scale), 1) FROM postrider_internal.nodes n), p, st)
              FROM postrider_internal.retry_policies p
              LEFT JOIN postrider_internal.event_subscription_states st ON st.subscription_id = s.id
             WHERE p.name = s.retry_policy) END AS expires_at,
       d.operation_id
  FROM postrider_internal.all_deliveries d
  JOIN postrider_internal.event_subscriptions s ON s.id = d.subscription_id
  JOIN postrider_internal.topics t ON t.id = d.topic_id
  LEFT JOIN postrider_internal.events e ON e.id = d.event_uuid AND e.day = d.event_day
  LEFT JOIN postrider_internal.batches b ON b.id = d.open_batch_id;
COMMENT ON VIEW postrider.deliveries IS
    'One row for each event and each event subscription that it matched, pending and finished.';
COMMENT ON COLUMN postrider.deliveries.delivery_id IS 'Id of the delivery.';
COMMENT ON COLUMN postrider.deliveries.topic IS 'Topic of the event.';
COMMENT ON COLUMN postrider.deliveries.subscription IS 'Event subscription that receives it.';
COMMENT ON COLUMN postrider.deliveries.event_id IS
    'The publisher''s id of the event; NULL once the event''s day was dropped.';
COMMENT ON COLUMN postrider.deliveries.event_type IS 'Event type.';
COMMENT ON COLUMN postrider.deliveries.subject IS 'Subject.';
COMMENT ON COLUMN postrider.deliveries.system_id IS 'postrider''s own id of the event.';
COMMENT ON COLUMN postrider.deliveries.state IS 'pending, delivered, dead_lettered, dropped or canceled.';
COMMENT ON COLUMN postrider.deliveries.hold IS
    'Why it waits without being attempted: paused, not_validated, probation, admission; NULL = it does not.';
COMMENT ON COLUMN postrider.deliveries.reason IS 'Why it ended dead_lettered, dropped or canceled.';
COMMENT ON COLUMN postrider.deliveries.attempts IS 'Attempts recorded.';
COMMENT ON COLUMN postrider.deliveries.reruns IS
    'Attempts that a crash interrupted and that were repeated without being counted.';
COMMENT ON COLUMN postrider.deliveries.next_attempt_at IS
    'Earliest time of the next attempt: now() if it is due and waits for a worker, never a past time. NULL while on '
    'hold, see hold_until, and when finished.';
COMMENT ON COLUMN postrider.deliveries.hold_until IS
    'While on hold: when the probation lets the next probe through, never a past time. NULL for a hold without a known '
    'end (paused, not_validated, admission), and without a hold.';
COMMENT ON COLUMN postrider.deliveries.expires_at IS
    'When the time to live ends, with the current settings of the event subscription and its policy''s retry window. '
    'No attempt begins at this time or later; a policy with expiry next_attempt ends the delivery when its next turn '
    'comes. Moves on while a pause stops the time to live. NULL when finished.';
COMMENT ON COLUMN postrider.deliveries.operation_id IS
    'Operation that redelivered it, see postrider.operations; NULL = none.';
COMMENT ON COLUMN postrider.deliveries.last_attempt_at IS 'When the last attempt began.';
COMMENT ON COLUMN postrider.deliveries.last_outcome IS 'What the last attempt came to.';
COMMENT ON COLUMN postrider.deliveries.last_status IS 'HTTP status of the last attempt; NULL = no response.';
COMMENT ON COLUMN postrider.deliveries.owed_since IS 'When the time to live began: publishing, or redelivery.';
COMMENT ON COLUMN postrider.deliveries.finished_at IS 'When it ended.';
COMMENT ON COLUMN postrider.deliveries.batch_id IS 'Batch that it is in, or was in when it ended; NULL when alone.';
COMMENT ON COLUMN postrider.deliveries.redelivered_from IS
    'Dead letter it was redelivered from, or the operation that delivered a past event; NULL = it began with the '
    'publish.';
COMMENT ON COLUMN postrider.deliveries.dead_letter_id IS 'Dead letter it became.';
COMMENT ON COLUMN postrider.deliveries.waits_for IS
    'What it waits for while it is pending: a hold''s end (paused, not_validated, probation, admission), '
    'next_attempt_at, batch (to be put into the next one), or worker: its turn has come, and it is in the queue or on '
    'its way.';
COMMENT ON COLUMN postrider.deliveries.subscription_id IS
    'Id of the event subscription, see postrider.event_subscriptions.';

CREATE VIEW postrider.backlogs AS
SELECT t.name AS topic, s.name AS subscription, o.deliveries AS owed_deliveries,
       (SELECT count(*) FROM postrider_internal.deliveries d WHERE d.subscription_id = s.id AND d.hold IS NOT NULL)
       + (SELECT coalesce(sum(b.members), 0)::bigint FROM postrider_internal.batches b WHERE b.subscription_id = s.id
           AND b.hold IS NOT NULL) AS held_deliveries,
       oldest.owed_since AS oldest_owed_since, postrider_internal.seconds(now() - oldest.owed_since)
           AS oldest_age_seconds, oldest.id AS oldest_delivery_id,
       s.id AS subscription_id
  FROM (SELECT subscription_id, sum(deliveries)::bigint AS deliveries
          FROM (SELECT subscription_id, deliveries FROM postrider_internal.owed
                 UNION ALL
                SELECT subscription_id, CASE kind WHEN 'owed' THEN count ELSE -count END
                  FROM postrider_internal.unmerged_counts
                 WHERE kind IN ('owed', 'delivered', 'dead_lettered', 'dropped', 'canceled')) both_of
         GROUP BY 1 HAVING sum(deliveries) > 0) o
  JOIN postrider_internal.event_subscriptions s ON s.id = o.subscription_id
  JOIN postrider_internal.topics t ON t.id = s.topic_id
  LEFT JOIN LATERAL (SELECT d.id, d.owed_since FROM postrider_internal.deliveries d
      WHERE d.subscription_id = o.subscription_id ORDER BY d.id LIMIT 1) oldest ON true;
COMMENT ON VIEW postrider.backlogs IS
    'Number of pending deliveries of each event subscription that has any: fast at any size, and exact.';
COMMENT ON COLUMN postrider.backlogs.topic IS 'Topic.';
COMMENT ON COLUMN postrider.backlogs.subscription IS 'Event subscription.';
COMMENT ON COLUMN postrider.backlogs.owed_deliveries IS 'How many deliveries are not finished.';
COMMENT ON COLUMN postrider.backlogs.held_deliveries IS
    'How many of them are on hold. This is counted: check hold in postrider.event_subscriptions first.';
COMMENT ON COLUMN postrider.backlogs.oldest_owed_since IS 'Since when the oldest delivery is pending.';
COMMENT ON COLUMN postrider.backlogs.oldest_age_seconds IS 'How long that is, in seconds.';
COMMENT ON COLUMN postrider.backlogs.oldest_delivery_id IS 'Which one it is, see postrider.deliveries.';
COMMENT ON COLUMN postrider.backlogs.subscription_id IS
    'Id of the event subscription, see postrider.event_subscriptions.';

CREATE VIEW postrider.delivery_attempts AS
SELECT a.delivery_id, a.batch_id, t.name AS topic, s.name AS subscription, a.number, a.reruns, a.due_at, a.started_at,
       round(a.duration_us / 1000.0, 3) AS duration_ms, round(a.dns_us / 1000.0, 3) AS dns_ms,
       round(a.connect_us / 1000.0, 3) AS connect_ms, round(a.tls_us / 1000.0, 3) AS tls_ms,
       round(a.first_byte_us / 1000.0, 3) AS first_byte_ms,
       a.status, a.outcome, a.error, a.verdict, a.next_attempt_at, a.rule AS why, a.step_ms, a.floor_ms, a.jitter_ms,
       a.retry_after_ms, a.hold, a.skipped_marks, a.late,
       postrider.try_text(a.response_headers) AS response_headers,
       postrider.try_text(a.response_excerpt) AS response_excerpt, a.node, a.day,
       round(extract(epoch FROM a.started_at - a.due_at) * 1000, 3) AS waited_ms, a.subscription_id,
       postrider.try_text(a.request_headers) AS request_headers
  FROM postrider_internal.delivery_attempts a
  JOIN postrider_internal.event_subscriptions s ON s.id = a.subscription_id
  JOIN postrider_internal.topics t ON t.id = s.topic_id;
COMMENT ON VIEW postrider.delivery_attempts IS
    'One row for each HTTP request, with its outcome and the reason for the time of the next one. A second row (late) '
    'if the response came after the ack timeout.';
COMMENT ON COLUMN postrider.delivery_attempts.delivery_id IS 'Delivery it belongs to; NULL for a batch.';
COMMENT ON COLUMN postrider.delivery_attempts.batch_id IS 'Batch it sent; NULL for a single delivery.';
COMMENT ON COLUMN postrider.delivery_attempts.topic IS 'Topic.';
COMMENT ON COLUMN postrider.delivery_attempts.subscription IS 'Event subscription.';
COMMENT ON COLUMN postrider.delivery_attempts.number IS
    'First attempt = 1; the header aeg-delivery-count of the request was one less.';
COMMENT ON COLUMN postrider.delivery_attempts.reruns IS
    'How many times a crash interrupted this attempt before; such a request may have reached the endpoint.';
COMMENT ON COLUMN postrider.delivery_attempts.due_at IS 'When it was due; hold says what it then waited for.';
COMMENT ON COLUMN postrider.delivery_attempts.started_at IS 'When the request began (database time).';
COMMENT ON COLUMN postrider.delivery_attempts.duration_ms IS
    'From the start of the request to the response or the failure, milliseconds. The phases (dns_ms, connect_ms, '
    'tls_ms, first_byte_ms) add up to this at most.';
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
COMMENT ON COLUMN postrider.delivery_attempts.outcome IS 'What the attempt came to, in Event Grid''s words.';
COMMENT ON COLUMN postrider.delivery_attempts.error IS 'What went wrong below HTTP.';
COMMENT ON COLUMN postrider.delivery_attempts.verdict IS
    'The policy''s decision: deliver, retry, dead_letter or drop; note: a late response that changed nothing.';
COMMENT ON COLUMN postrider.delivery_attempts.next_attempt_at IS 'When the next attempt was scheduled for.';
COMMENT ON COLUMN postrider.delivery_attempts.why IS 'Why, in one line.';
COMMENT ON COLUMN postrider.delivery_attempts.step_ms IS 'Step of the retry schedule, milliseconds.';
COMMENT ON COLUMN postrider.delivery_attempts.floor_ms IS 'Minimum delay for the status code, in milliseconds.';
COMMENT ON COLUMN postrider.delivery_attempts.jitter_ms IS 'Randomisation added, milliseconds.';
COMMENT ON COLUMN postrider.delivery_attempts.retry_after_ms IS 'The endpoint''s Retry-After, in milliseconds.';
COMMENT ON COLUMN postrider.delivery_attempts.hold IS
    'Hold that this attempt had to wait for after its turn had come; NULL = none. Its wait is started_at - due_at.';
COMMENT ON COLUMN postrider.delivery_attempts.skipped_marks IS
    'Offsets of the schedule that passed unused so far, during a hold or a slow response.';
COMMENT ON COLUMN postrider.delivery_attempts.late IS
    'A response after the ack timeout had ended the attempt: a second row of the same number. Verdict deliver: a '
    'success that canceled the queued retry. note: a failure, or a success without a queued retry because it was in '
    'progress or the delivery had ended; it changed nothing.';
COMMENT ON COLUMN postrider.delivery_attempts.request_headers IS
    'Headers of the request, first 2 KiB, with *** for the values of secret delivery attributes, of Authorization and '
    'of signatures. NULL if no request was sent, for a late response, and after an erasure.';
COMMENT ON COLUMN postrider.delivery_attempts.response_headers IS 'Headers of the response, first 4 KiB.';
COMMENT ON COLUMN postrider.delivery_attempts.response_excerpt IS 'Body of the response, first 4 KiB.';
COMMENT ON COLUMN postrider.delivery_attempts.node IS 'Node that sent the request.';
COMMENT ON COLUMN postrider.delivery_attempts.day IS 'UTC day of recording: the partition.';
COMMENT ON COLUMN postrider.delivery_attempts.waited_ms IS
    'Time between due and start, in milliseconds; hold says what it waited for.';
COMMENT ON COLUMN postrider.delivery_attempts.subscription_id IS
    'Id of the event subscription, see postrider.event_subscriptions.';

CREATE VIEW postrider.batches AS
SELECT b.id AS batch_id, t.name AS topic, s.name AS subscription, b.state, b.hold, b.members, b.bytes, b.attempts,
       b.reruns,
       CASE WHEN b.state = 'pending' AND b.hold IS NULL THEN greatest(b.next_attempt_at, now()) END AS next_attempt_at,
       b.first_attempt_at, b.last_attempt_at, b.last_outcome, b.last_status, b.created_at, b.finished_at,
       b.subscription_id,
       CASE WHEN b.hold = 'probation' THEN (SELECT v.hold_until FROM postrider.event_subscriptions v
           WHERE v.subscription_id = s.id) END AS hold_until
  FROM postrider_internal.batches b
  JOIN postrider_internal.event_subscriptions s ON s.id = b.subscription_id
  JOIN postrider_internal.topics t ON t.id = s.topic_id;
COMMENT ON VIEW postrider.batches IS 'Deliveries sent together in one request, all or none.';
COMMENT ON COLUMN postrider.batches.batch_id IS 'Id of the batch.';
COMMENT ON COLUMN postrider.batches.topic IS 'Topic.';
COMMENT ON COLUMN postrider.batches.subscription IS 'Event subscription.';
COMMENT ON COLUMN postrider.batches.state IS 'pending, delivered, dead_lettered, dropped or canceled.';
COMMENT ON COLUMN postrider.batches.hold IS
    'Why it waits without being attempted: paused, not_validated, probation, admission; NULL = it does not.';
COMMENT ON COLUMN postrider.batches.members IS
    'Number of events in it, without those that left; see postrider.batch_members.';
COMMENT ON COLUMN postrider.batches.bytes IS
    'Size of the last request''s body in bytes; before the first one, what it will be at most.';
COMMENT ON COLUMN postrider.batches.attempts IS 'Attempts recorded.';
COMMENT ON COLUMN postrider.batches.reruns IS
    'Attempts that a crash interrupted and that were repeated without being counted.';
COMMENT ON COLUMN postrider.batches.next_attempt_at IS
    'Earliest time of the next attempt: now() if it is due and waits for a worker, never a past time. NULL while on '
    'hold, see hold_until, and when finished.';
COMMENT ON COLUMN postrider.batches.hold_until IS
    'While on hold: when the probation lets the next probe through, never a past time. NULL for a hold without a known '
    'end (paused, not_validated, admission), and without a hold.';
COMMENT ON COLUMN postrider.batches.first_attempt_at IS 'When the first attempt began.';
COMMENT ON COLUMN postrider.batches.last_attempt_at IS 'When the last attempt began.';
COMMENT ON COLUMN postrider.batches.last_outcome IS 'What the last attempt came to.';
COMMENT ON COLUMN postrider.batches.last_status IS 'HTTP status of the last attempt; NULL = no response.';
COMMENT ON COLUMN postrider.batches.created_at IS 'When the batch was cut.';
COMMENT ON COLUMN postrider.batches.finished_at IS 'When it ended.';
COMMENT ON COLUMN postrider.batches.subscription_id IS
    'Id of the event subscription, see postrider.event_subscriptions.';

CREATE VIEW postrider.batch_members AS
SELECT m.batch_id, m.position, m.delivery_id, d.event_id, m.left_at, m.left_after, m.left_reason
  FROM postrider_internal.batch_members m
  LEFT JOIN LATERAL (SELECT e.event_id
                       FROM postrider_internal.all_deliveries d
                       JOIN postrider_internal.events e ON e.id = d.event_uuid AND e.day = d.event_day
                      WHERE d.id = m.delivery_id LIMIT 1) d ON true;
COMMENT ON VIEW postrider.batch_members IS
    'Which deliveries a batch was cut of. Those that left it stay here, with the reason.';
COMMENT ON COLUMN postrider.batch_members.batch_id IS 'Batch, see postrider.batches.';
COMMENT ON COLUMN postrider.batch_members.position IS
    'Place in the request''s body when all were in it: 1 = first. Each attempt sends them in this order.';
COMMENT ON COLUMN postrider.batch_members.delivery_id IS 'Delivery, see postrider.deliveries.';
COMMENT ON COLUMN postrider.batch_members.event_id IS
    'The publisher''s id of the event; NULL once the event''s day was dropped.';
COMMENT ON COLUMN postrider.batch_members.left_at IS 'When it left the batch while that went on; NULL = it did not.';
COMMENT ON COLUMN postrider.batch_members.left_after IS
    'How many attempts of the batch it was in when it left; NULL = it did not leave.';
COMMENT ON COLUMN postrider.batch_members.left_reason IS
    'Why: the reason it ended with (TimeToLiveExceeded, …); OwnTime: its time to live ends before the batch''s next '
    'attempt, and it is looked at alone then; Unsendable: its event could not be written into the body; HeaderValue: '
    'its Dynamic header values differ from those of the first member; TooManyReruns: the batch was interrupted 20 '
    'times, and each goes alone; RetriedByOperator: postrider.retry_now() let it go alone.';

CREATE VIEW postrider.dead_letters AS
SELECT l.id AS dead_letter_id, l.dead_lettered_at, l.topic, l.subscription, l.reason, l.attempts, l.last_outcome,
       l.last_status, l.last_error,
       l.event_id, l.event_type, l.subject, nullif(l.source, '') AS source, l.event_time, l.published_at, l.owed_since,
       l.first_attempt_at, l.last_attempt_at,
       l.schema, l.retry_policy, l.endpoint_base_url,
       CASE WHEN l.erased_at IS NULL THEN convert_from(l.body, 'UTF8') END AS body_text,
           postrider.try_jsonb(l.body) AS body,
       CASE WHEN l.erased_at IS NULL THEN postrider.jsonb_error(l.body)
           ELSE 'erased at ' || l.erased_at END AS body_error,
       postrider.try_text(l.last_response) AS last_response, l.delivery_id, l.event_uuid AS system_id,
       l.redelivered_from, l.redelivered_at,
       l.export_state, l.export_due_at, l.export_give_up_at, l.export_attempts, l.export_error, l.export_location,
       l.exported_at, l.erased_at
  FROM postrider_internal.dead_letters l;
COMMENT ON VIEW postrider.dead_letters IS
    'Events that will not be attempted again, each with its body, reason and history. Self-contained: it outlives '
    'event, event subscription and topic.';
COMMENT ON COLUMN postrider.dead_letters.dead_letter_id IS 'Id of the dead letter.';
COMMENT ON COLUMN postrider.dead_letters.dead_lettered_at IS 'When the delivery became a dead letter.';
COMMENT ON COLUMN postrider.dead_letters.topic IS 'Topic of the event.';
COMMENT ON COLUMN postrider.dead_letters.subscription IS 'Event subscription that did not get it.';
COMMENT ON COLUMN postrider.dead_letters.reason IS
    'deadLetterReason: MaxDeliveryAttemptsExceeded, TimeToLiveExceeded, UndeliverableDueToHttpBadRequest, '
    'UndeliverableDueToClientError, ...';
COMMENT ON COLUMN postrider.dead_letters.attempts IS 'deliveryAttempts: number of attempts.';
COMMENT ON COLUMN postrider.dead_letters.last_outcome IS 'lastDeliveryOutcome: what the last attempt came to.';
COMMENT ON COLUMN postrider.dead_letters.last_status IS 'HTTP status of the last attempt; NULL = no response.';
COMMENT ON COLUMN postrider.dead_letters.last_error IS 'What went wrong below HTTP in the last attempt.';
COMMENT ON COLUMN postrider.dead_letters.event_id IS 'The publisher''s id of the event.';
COMMENT ON COLUMN postrider.dead_letters.event_type IS 'Event type.';
COMMENT ON COLUMN postrider.dead_letters.subject IS 'Subject.';
COMMENT ON COLUMN postrider.dead_letters.source IS 'CloudEvents source; NULL in the Event Grid schema.';
COMMENT ON COLUMN postrider.dead_letters.event_time IS 'The publisher''s time of the event.';
COMMENT ON COLUMN postrider.dead_letters.published_at IS 'publishTime: when it was accepted.';
COMMENT ON COLUMN postrider.dead_letters.owed_since IS 'When its time to live began.';
COMMENT ON COLUMN postrider.dead_letters.first_attempt_at IS 'When the first attempt began.';
COMMENT ON COLUMN postrider.dead_letters.last_attempt_at IS 'lastDeliveryAttemptTime: when the last attempt began.';
COMMENT ON COLUMN postrider.dead_letters.schema IS 'Schema of the body.';
COMMENT ON COLUMN postrider.dead_letters.retry_policy IS 'Retry policy that decided.';
COMMENT ON COLUMN postrider.dead_letters.endpoint_base_url IS 'Endpoint, without its query string.';
COMMENT ON COLUMN postrider.dead_letters.body_text IS 'The whole event as accepted, as text.';
COMMENT ON COLUMN postrider.dead_letters.body IS
    'The whole event as jsonb; NULL if PostgreSQL cannot hold it, see body_error.';
COMMENT ON COLUMN postrider.dead_letters.body_error IS 'Why body is NULL.';
COMMENT ON COLUMN postrider.dead_letters.last_response IS 'Body of the last response, first 4 KiB.';
COMMENT ON COLUMN postrider.dead_letters.delivery_id IS 'Delivery that ended so.';
COMMENT ON COLUMN postrider.dead_letters.system_id IS 'postrider''s own id of the event.';
COMMENT ON COLUMN postrider.dead_letters.redelivered_from IS
    'Earlier dead letter of the same event that this one''s delivery came from, or the operation that delivered a past '
    'event.';
COMMENT ON COLUMN postrider.dead_letters.redelivered_at IS 'When it was last redelivered; the dead letter stays.';
COMMENT ON COLUMN postrider.dead_letters.erased_at IS
    'When body, subject and response were erased, see postrider.erase_event(). It cannot be redelivered. NULL = not '
    'erased.';
COMMENT ON COLUMN postrider.dead_letters.export_state IS
    'Of a dead letter that is to be written to a location outside, too: pending, exported or given_up. NULL = it is '
    'kept here alone.';
COMMENT ON COLUMN postrider.dead_letters.export_due_at IS
    'When it is due to be written: the last attempt and the policy''s dead_letter_delay.';
COMMENT ON COLUMN postrider.dead_letters.export_give_up_at IS
    'Until when that is tried: the policy''s dead_letter_give_up later.';
COMMENT ON COLUMN postrider.dead_letters.export_attempts IS 'How often it was tried.';
COMMENT ON COLUMN postrider.dead_letters.export_error IS 'Why the last try failed; NULL = it did not.';
COMMENT ON COLUMN postrider.dead_letters.export_location IS 'URL of the file that it was written to, without a query.';
COMMENT ON COLUMN postrider.dead_letters.exported_at IS 'When it was written; NULL = it was not, or was not yet.';

CREATE VIEW postrider.retry_policies AS
SELECT p.name, p.built_in, p.source, postrider_internal.seconds(p.ack_timeout) AS ack_timeout_seconds, p.basis,
       (SELECT array_agg(postrider_internal.seconds(i) ORDER BY o) FROM unnest(p.steps)
           WITH ORDINALITY AS u(i, o)) AS steps_seconds,
       postrider_internal.seconds(p.tail) AS tail_seconds,
       postrider_internal.seconds(p.retry_window) AS retry_window_seconds, p.jitter_fraction,
       postrider_internal.seconds(p.jitter_cap) AS jitter_cap_seconds, p.expiry,
       postrider_internal.seconds(p.default_ttl) / 60 AS default_ttl_minutes,
       postrider_internal.seconds(p.min_ttl) / 60 AS min_ttl_minutes,
       postrider_internal.seconds(p.max_ttl) / 60 AS max_ttl_minutes,
       p.default_max_attempts, p.min_max_attempts, p.max_max_attempts, p.honor_retry_after,
       postrider_internal.seconds(p.retry_after_cap) AS retry_after_cap_seconds, p.retry_transport_errors,
       p.dead_letter_default,
       postrider_internal.seconds(p.dead_letter_delay) AS dead_letter_delay_seconds,
       postrider_internal.seconds(p.dead_letter_give_up) AS dead_letter_give_up_seconds,
       postrider_internal.seconds(p.late_answer_window) AS late_answer_window_seconds, p.batching, p.probation_scope,
       p.probation_trigger, p.probation_action,
       postrider_internal.seconds(p.probation_first) AS probation_first_seconds,
       postrider_internal.seconds(p.probation_max) AS probation_max_seconds,
       (SELECT jsonb_object_agg(b.outcome, postrider_internal.seconds(b.duration))
           FROM postrider_internal.retry_policy_probations b WHERE b.policy = p.name) AS probation_by_outcome,
       p.created_at, p.updated_at
  FROM postrider_internal.retry_policies p
 WHERE p.deleted_at IS NULL;
COMMENT ON VIEW postrider.retry_policies IS
    'Retry policies: the documented generations of Event Grid, and own ones. The status-code table is in '
    'postrider.retry_policy_cells.';
COMMENT ON COLUMN postrider.retry_policies.name IS 'Name of the policy.';
COMMENT ON COLUMN postrider.retry_policies.built_in IS
    'true: one of the five documented generations; such a policy never changes. false: an own one.';
COMMENT ON COLUMN postrider.retry_policies.source IS 'Page that documents it; of an own one, whatever it was given.';
COMMENT ON COLUMN postrider.retry_policies.ack_timeout_seconds IS
    'How long postrider waits for an endpoint''s response.';
COMMENT ON COLUMN postrider.retry_policies.basis IS
    'gap: a step is counted from the failed attempt; offset: from the first attempt.';
COMMENT ON COLUMN postrider.retry_policies.steps_seconds IS 'Retry schedule in seconds.';
COMMENT ON COLUMN postrider.retry_policies.tail_seconds IS 'Step that repeats after the schedule is used up.';
COMMENT ON COLUMN postrider.retry_policies.retry_window_seconds IS
    'No attempt is made later than this after the delivery began; NULL = no such limit.';
COMMENT ON COLUMN postrider.retry_policies.jitter_fraction IS 'Randomisation added to a step, as a share of it.';
COMMENT ON COLUMN postrider.retry_policies.jitter_cap_seconds IS 'Most randomisation added.';
COMMENT ON COLUMN postrider.retry_policies.expiry IS
    'at_ttl: a delivery ends when its time to live passes; next_attempt: when its next turn finds that it has passed.';
COMMENT ON COLUMN postrider.retry_policies.default_ttl_minutes IS 'Time to live unless set.';
COMMENT ON COLUMN postrider.retry_policies.min_ttl_minutes IS 'Least time to live that may be set.';
COMMENT ON COLUMN postrider.retry_policies.max_ttl_minutes IS 'Longest time to live that may be set.';
COMMENT ON COLUMN postrider.retry_policies.default_max_attempts IS 'Limit of attempts unless set; NULL = none.';
COMMENT ON COLUMN postrider.retry_policies.min_max_attempts IS 'Least limit that may be set.';
COMMENT ON COLUMN postrider.retry_policies.max_max_attempts IS 'Highest limit that may be set.';
COMMENT ON COLUMN postrider.retry_policies.honor_retry_after IS
    'Whether the documentation says that Retry-After is honored; behavior safe always honors it.';
COMMENT ON COLUMN postrider.retry_policies.retry_after_cap_seconds IS 'Longest wait that Retry-After can cause.';
COMMENT ON COLUMN postrider.retry_policies.retry_transport_errors IS
    'Under behavior documented: whether an attempt without a response, such as a timeout, is retried even where the '
        'table says never; '
    'behavior safe retries it always.';
COMMENT ON COLUMN postrider.retry_policies.dead_letter_default IS
    'rows or none: the dead-letter destination under behavior documented if none is named; behavior safe keeps rows.';
COMMENT ON COLUMN postrider.retry_policies.dead_letter_delay_seconds IS
    'Delay between the last attempt and the first try to write a dead letter to an outside location.';
COMMENT ON COLUMN postrider.retry_policies.dead_letter_give_up_seconds IS 'How long such a write is tried; 0 = once.';
COMMENT ON COLUMN postrider.retry_policies.late_answer_window_seconds IS
    'How long after its start a success that came too late still counts, by the page.';
COMMENT ON COLUMN postrider.retry_policies.batching IS 'Whether this generation delivers batches.';
COMMENT ON COLUMN postrider.retry_policies.probation_scope IS
    'What goes on probation after failures: none, endpoint or event_subscription.';
COMMENT ON COLUMN postrider.retry_policies.probation_trigger IS 'Failures in a row that start a probation.';
COMMENT ON COLUMN postrider.retry_policies.probation_action IS
    'hold, or documented: some causes end deliveries without an attempt; behavior safe holds always.';
COMMENT ON COLUMN postrider.retry_policies.probation_first_seconds IS
    'Duration of the first probation; doubled each time the probe fails.';
COMMENT ON COLUMN postrider.retry_policies.probation_max_seconds IS 'Longest probation.';
COMMENT ON COLUMN postrider.retry_policies.probation_by_outcome IS
    'Seconds of probation by the outcome of the failure, instead of the first and the longest; NULL = independent of '
    'the outcome.';
COMMENT ON COLUMN postrider.retry_policies.created_at IS 'When the policy was created.';
COMMENT ON COLUMN postrider.retry_policies.updated_at IS 'When it was last put.';

CREATE VIEW postrider.retry_policy_cells AS
SELECT c.policy, c.endpoint_kind, c.condition, c.action, postrider_internal.seconds(c.min_delay) AS min_delay_seconds
  FROM postrider_internal.retry_policy_cells c;
COMMENT ON VIEW postrider.retry_policy_cells IS
    'The status-code policy table: what each response or error means under each policy.';
COMMENT ON COLUMN postrider.retry_policy_cells.policy IS 'Name of the policy.';
COMMENT ON COLUMN postrider.retry_policy_cells.endpoint_kind IS 'webhook or azure-resource.';
COMMENT ON COLUMN postrider.retry_policy_cells.condition IS
    'A status code, "other" for any other status, or an error: timeout, canceled, socket, dns, unauthorized, argument.';
COMMENT ON COLUMN postrider.retry_policy_cells.action IS
    'success, retry, never, or never_if_dead_letter: never when a dead-letter destination is set, else retry.';
COMMENT ON COLUMN postrider.retry_policy_cells.min_delay_seconds IS 'Retry no sooner than this.';

CREATE VIEW postrider.nodes AS
SELECT n.id AS node, n.host, n.version, n.started_at, n.beat_at, n.sweeper_finds, n.time_scale
FROM postrider_internal.nodes n;
COMMENT ON VIEW postrider.nodes IS
    'Nodes that deliver: one row for each process, until it stops or another node finds it dead. beat_at shows '
    'whether it is alive.';
COMMENT ON COLUMN postrider.nodes.node IS 'Name of the process, the one in delivery_attempts.node.';
COMMENT ON COLUMN postrider.nodes.host IS 'Machine it runs on.';
COMMENT ON COLUMN postrider.nodes.version IS 'Version of the program.';
COMMENT ON COLUMN postrider.nodes.started_at IS 'When it started.';
COMMENT ON COLUMN postrider.nodes.beat_at IS 'Its last heartbeat; there is one a second.';
COMMENT ON COLUMN postrider.nodes.sweeper_finds IS
    'Consistency repairs of its sweeper since it started. It should be 0.';
COMMENT ON COLUMN postrider.nodes.time_scale IS
    'By how much it divides every wait between attempts: 1, except under postrider dev --time-scale.';

CREATE VIEW postrider.storage AS
SELECT coalesce(parent.relname, c.relname)::text AS table_name, CASE WHEN parent.relname IS NOT NULL
    THEN to_date(right(c.relname, 8), 'YYYYMMDD') END AS day,
       nullif(c.reltuples, -1)::bigint AS rows_estimate, pg_total_relation_size(c.oid) AS total_bytes,
       pg_indexes_size(c.oid) AS index_bytes
  FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'postrider_internal'
  LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
  LEFT JOIN pg_class parent ON parent.oid = i.inhparent
 WHERE c.relkind = 'r';
COMMENT ON VIEW postrider.storage IS
    'Size of each table on disk, by day for partitioned tables. The tables are not part of the contract; their sizes '
    'are.';
COMMENT ON COLUMN postrider.storage.table_name IS
    'Table. events, delivery_history (finished deliveries) and delivery_attempts have a part for each day; deliveries '
    'are the unfinished ones.';
COMMENT ON COLUMN postrider.storage.day IS 'UTC day of the part; NULL of a table without days.';
COMMENT ON COLUMN postrider.storage.rows_estimate IS 'How many rows PostgreSQL counted in it last; NULL before it has.';
COMMENT ON COLUMN postrider.storage.total_bytes IS 'Bytes on disk, with indexes and long values.';
COMMENT ON COLUMN postrider.storage.index_bytes IS 'Bytes of its indexes.';

CREATE VIEW postrider.delivery_counts AS
SELECT c.minute, t.name AS topic, s.name AS subscription, c.kind, c.detail, c.count, c.latency_buckets,
       c.subscription_id
  FROM (SELECT minute, topic_id, subscription_id, kind, detail, sum(count)::bigint AS count,
               CASE WHEN bool_or(latency_buckets IS NOT NULL) THEN ARRAY [
                    coalesce(sum(latency_buckets[1]), 0)::bigint, coalesce(sum(latency_buckets[2]), 0)::bigint,
                    coalesce(sum(latency_buckets[3]), 0)::bigint, coalesce(sum(latency_buckets[4]), 0)::bigint,
                    coalesce(sum(latency_buckets[5]), 0)::bigint, coalesce(sum(latency_buckets[6]), 0)::bigint,
                    coalesce(sum(latency_buckets[7]), 0)::bigint, coalesce(sum(latency_buckets[8]), 0)::bigint,
                    coalesce(sum(latency_buckets[9]), 0)::bigint, coalesce(sum(latency_buckets[10]), 0)::bigint,
                    coalesce(sum(latency_buckets[11]), 0)::bigint, coalesce(sum(latency_buckets[12]), 0)::bigint,
                    coalesce(sum(latency_buckets[13]), 0)::bigint, coalesce(sum(latency_buckets[14]), 0)::bigint]
               END AS latency_buckets
          FROM (SELECT minute, topic_id, subscription_id, kind, detail, count, latency_buckets
                  FROM postrider_internal.rollups
                 UNION ALL
                SELECT minute, topic_id, subscription_id, kind, detail, count, latency_buckets
                  FROM postrider_internal.unmerged_counts) counts
         GROUP BY minute, topic_id, subscription_id, kind, detail) c
  JOIN postrider_internal.topics t ON t.id = c.topic_id
  LEFT JOIN postrider_internal.event_subscriptions s ON s.id = c.subscription_id;
COMMENT ON VIEW postrider.delivery_counts IS
    'What happened in each minute, counted exactly: written in the transactions that did it. Cheap at any number of '
    'deliveries; it outlives events and history.';
COMMENT ON COLUMN postrider.delivery_counts.minute IS 'Beginning of the minute.';
COMMENT ON COLUMN postrider.delivery_counts.topic IS 'Topic.';
COMMENT ON COLUMN postrider.delivery_counts.subscription IS
    'Event subscription; NULL for published and duplicate, which are counted once however many want the event.';
COMMENT ON COLUMN postrider.delivery_counts.kind IS
    'What is counted: published (events), duplicate (events that were published again and are stored once), owed '
    '(deliveries begun), attempt (requests), or how deliveries ended: delivered, dead_lettered, dropped, canceled.';
COMMENT ON COLUMN postrider.delivery_counts.detail IS
    'For an attempt its outcome, for an end its reason; FirstAttempt for delivered without a second attempt; '
    'otherwise empty.';
COMMENT ON COLUMN postrider.delivery_counts.count IS 'How many.';
COMMENT ON COLUMN postrider.delivery_counts.latency_buckets IS
    'Of attempts: how many took less than 5, 10, 25, 50, 100, 250, 500 ms, 1, 2.5, 5, 10, 30, 60 s, and longer, each '
    'without those before it; else NULL.';
COMMENT ON COLUMN postrider.delivery_counts.subscription_id IS
    'Id of the event subscription, see postrider.event_subscriptions; 0 for published and duplicate.';

CREATE VIEW postrider.operations AS
SELECT o.id AS operation_id, o.kind, o.state, o.filter, o.topic, o.subscription, o.published_from, o.published_until,
       o.rate_per_second, o.matched::integer AS matched, o.matched_at_least, o.done, o.skipped, o.failed, o.last_error,
       CASE WHEN o.steps = 0 THEN NULL WHEN o.kind = 'redeliver_events' OR o.kind = 'erase_subject' AND NOT o.of_letters
           THEN greatest(o.cursor_at, postrider_internal.time_of_id(o.cursor_id))
           ELSE nullif(o.cursor_at, '-infinity') END AS reached_at,
       o.started_by, o.created_at, o.finished_at,
       CASE WHEN o.kind LIKE 'redeliver%' THEN o.done - coalesce(e.ended, 0) END AS pending,
       CASE WHEN o.kind LIKE 'redeliver%' THEN coalesce(e.delivered, 0) END AS delivered,
       CASE WHEN o.kind LIKE 'redeliver%' THEN coalesce(e.dead_lettered, 0) END AS dead_lettered,
       CASE WHEN o.kind LIKE 'redeliver%' THEN coalesce(e.dropped, 0) END AS dropped,
       CASE WHEN o.kind LIKE 'redeliver%' THEN coalesce(e.canceled, 0) END AS canceled
  FROM postrider_internal.operations o
  LEFT JOIN (SELECT operation_id, sum(deliveries)::bigint AS ended,
                    (sum(deliveries) FILTER (WHERE state = 'delivered'))::bigint AS delivered,
                    (sum(deliveries) FILTER (WHERE state = 'dead_lettered'))::bigint AS dead_lettered,
                    (sum(deliveries) FILTER (WHERE state = 'dropped'))::bigint AS dropped,
                    (sum(deliveries) FILTER (WHERE state = 'canceled'))::bigint AS canceled
               FROM (SELECT operation_id, state, deliveries FROM postrider_internal.operation_outcomes
                      UNION ALL
                     SELECT operation_id, kind, count FROM postrider_internal.unmerged_counts
                      WHERE operation_id IS NOT NULL) both_of
              GROUP BY operation_id) e ON e.operation_id = o.id;
COMMENT ON VIEW postrider.operations IS
    'Redeliveries, purges and erasures of many, running and ended. Ended ones are kept for 30 days.';
COMMENT ON COLUMN postrider.operations.operation_id IS 'Id of the operation; a later one has a higher id.';
COMMENT ON COLUMN postrider.operations.kind IS
    'redeliver (dead letters), purge (dead letters), redeliver_events (past events) or erase_subject.';
COMMENT ON COLUMN postrider.operations.state IS 'running; done; canceled (by an operator); failed: see last_error.';
COMMENT ON COLUMN postrider.operations.filter IS
    'Which dead letters; {} = all of them. See postrider.count_dead_letters(). {"erased": true}: it contained a '
    'subject that was erased. An erasure''s filter has the subject while it is running.';
COMMENT ON COLUMN postrider.operations.topic IS
    'Topic of the event subscription that everything goes to; NULL = each dead letter goes to its own. Of an erasure, '
    'the topic whose events are erased.';
COMMENT ON COLUMN postrider.operations.subscription IS 'That event subscription.';
COMMENT ON COLUMN postrider.operations.published_from IS 'Of past events: from this time of publishing on.';
COMMENT ON COLUMN postrider.operations.published_until IS 'Of past events: before this time of publishing.';
COMMENT ON COLUMN postrider.operations.rate_per_second IS 'At most so many a second; NULL = as fast as it goes.';
COMMENT ON COLUMN postrider.operations.matched IS
    'How many dead letters matched at the start; NULL for past events and erasures, which are searched step by step.';
COMMENT ON COLUMN postrider.operations.matched_at_least IS
    'true: there were more than matched. Counting is stopped after two seconds.';
COMMENT ON COLUMN postrider.operations.done IS 'How many were redelivered, purged or erased.';
COMMENT ON COLUMN postrider.operations.skipped IS
    'How many dead letters others purged or redelivered first; for past events, how many the filter does not match.';
COMMENT ON COLUMN postrider.operations.failed IS
    'How many could not be redelivered: their event subscription was deleted or has expired, does not take their '
    'schema, or they were erased.';
COMMENT ON COLUMN postrider.operations.last_error IS 'What last went wrong; NULL = nothing.';
COMMENT ON COLUMN postrider.operations.reached_at IS
    'How far it has come, about: the time of the last dead letter, or of publishing of the last event, that it '
    'checked; NULL = not begun. An erasure checks the events, then the dead letters.';
COMMENT ON COLUMN postrider.operations.started_by IS 'Who started it; values as in postrider.audit.actor.';
COMMENT ON COLUMN postrider.operations.created_at IS
    'When it was started. It does not include dead letters that were written later.';
COMMENT ON COLUMN postrider.operations.finished_at IS 'When it ended; NULL = it is running.';
COMMENT ON COLUMN postrider.operations.pending IS
    'How many of its redeliveries are not finished: postrider.deliveries with this operation_id. NULL, as the four '
    'counts below, for a purge or an erasure.';
COMMENT ON COLUMN postrider.operations.delivered IS
    'How many of its redeliveries were delivered. Exact, and kept after the deliveries'' own rows are gone.';
COMMENT ON COLUMN postrider.operations.dead_lettered IS 'How many of its redeliveries became dead letters again.';
COMMENT ON COLUMN postrider.operations.dropped IS
    'How many of its redeliveries were dropped: they failed, and their event subscription keeps no dead letters.';
COMMENT ON COLUMN postrider.operations.canceled IS 'How many of its redeliveries were canceled.';

-- +goose Down
DROP VIEW postrider.operations, postrider.delivery_counts, postrider.storage, postrider.nodes,
    postrider.retry_policy_cells, postrider.retry_policies, postrider.dead_letters, postrider.batch_members,
    postrider.batches, postrider.delivery_attempts, postrider.backlogs, postrider.deliveries, postrider.events,
    postrider.event_subscriptions, postrider.topics, postrider_internal.all_deliveries,
    postrider_internal.unmerged_counts;
DROP FUNCTION postrider_internal.expires_at;
