-- +goose Up
-- The views of the SQL contract on topics, event subscriptions and retry policies, and on nodes and storage.
CREATE VIEW postrider.topics AS
SELECT t.name AS topic, t.kind, t.input_schema, t.input_schema_mapping, t.created_at, t.updated_at,
       (SELECT count(*) FROM postrider_internal.event_subscriptions s
         WHERE s.topic_id = t.id AND s.deleted_at IS NULL) AS subscriptions,
       t.event_retention_in_days, t.duplicate_detection_window_in_minutes, t.relay
  FROM postrider_internal.topics t
 WHERE t.deleted_at IS NULL;
COMMENT ON VIEW postrider.topics IS 'Topics that publishers post events to. Access keys are never shown.';
COMMENT ON COLUMN postrider.topics.topic IS 'Name of the topic, unique among topics that exist.';
COMMENT ON COLUMN postrider.topics.kind IS 'basic (custom topic) or namespace (namespace topic).';
COMMENT ON COLUMN postrider.topics.input_schema IS
    'What publishers send: EventGridSchema, CloudEventSchemaV1_0 or CustomEventSchema.';
COMMENT ON COLUMN postrider.topics.input_schema_mapping IS
    'Of CustomEventSchema: which members of an event are its id, type, subject and so on. Otherwise NULL.';
COMMENT ON COLUMN postrider.topics.created_at IS 'When the topic was created.';
COMMENT ON COLUMN postrider.topics.updated_at IS 'When the topic was last changed.';
COMMENT ON COLUMN postrider.topics.subscriptions IS 'How many event subscriptions the topic has now.';
COMMENT ON COLUMN postrider.topics.event_retention_in_days IS
    'For a namespace topic: the limit of every event subscription''s time to live. Otherwise NULL.';
COMMENT ON COLUMN postrider.topics.duplicate_detection_window_in_minutes IS
    'Minutes in which an event of the same source and id is not stored again; NULL = no detection.';
COMMENT ON COLUMN postrider.topics.relay IS
    'azure: event subscriptions of Azure Event Grid deliver into the topic, see postrider.relay_feeds. none: they '
    'cannot.';

CREATE VIEW postrider.event_subscriptions AS
SELECT t.name AS topic, s.name AS subscription, s.endpoint_base_url,
       coalesce(s.settings ->> 'endpointKind',
                CASE o.destination WHEN 'WebHook' THEN 'webhook' ELSE 'azure-resource' END) AS endpoint_kind,
       s.event_delivery_schema, s.retry_policy,
       postrider_internal.max_attempts(o.attempts, p) AS max_delivery_attempts,
       postrider_internal.time_to_live(o.minutes, t.event_retention_in_days, p) AS event_time_to_live_in_minutes,
       coalesce(o.settings -> 'filter', '{}') AS filter,
       coalesce(o.settings -> 'deadLetterDestination', jsonb_build_object('endpointType',
            CASE WHEN o.behavior = 'documented' AND p.settings ->> 'deadLetterDefault' = 'none' THEN 'None'
            ELSE 'Rows' END)
       ) AS dead_letter_destination,
       o.behavior,
       coalesce((o.settings ->> 'maxEventsPerBatch')::integer,
                CASE WHEN o.settings ->> 'preferredBatchSizeInKilobytes' IS NOT NULL THEN 10
                     WHEN o.destination = 'EventHub' THEN 100 ELSE 1 END) AS max_events_per_batch,
       coalesce((o.settings ->> 'preferredBatchSizeInKilobytes')::integer,
                CASE WHEN o.destination = 'EventHub' AND o.settings ->> 'maxEventsPerBatch' IS NULL THEN 192 ELSE 64 END
       ) AS preferred_batch_size_in_kilobytes,
       (o.settings ->> 'maxConcurrentDeliveries')::integer AS max_concurrent_deliveries,
       nullif(o.settings -> 'deliveryRate', 'null') AS delivery_rate, s.provisioning_state,
       h.hold, h.cause AS hold_cause, h.since AS hold_since,
       h.until AS hold_until, h.probing,
       (SELECT count(*) FROM postrider_internal.deliveries d WHERE d.subscription_id = s.id AND d.hold IS NOT NULL)
       + (SELECT coalesce(sum(b.members), 0)::bigint FROM postrider_internal.batches b
           WHERE b.subscription_id = s.id AND b.hold IS NOT NULL)
       + (SELECT count(*) FROM postrider_internal.held_available a WHERE a.subscription_id = s.id) AS held_deliveries,
       s.signing_sealed IS NOT NULL AS signed,
       CASE WHEN o.destination NOT IN ('ServiceBusQueue', 'ServiceBusTopic', 'EventHub', 'HybridConnection')
            THEN s.endpoint_validation END AS endpoint_validation,
       o.settings ->> 'description' AS description,
       ARRAY (SELECT jsonb_array_elements_text(o.settings -> 'labels')) AS labels, s.created_at, s.updated_at,
       coalesce((o.settings ->> 'honorRetryAfter')::boolean,
                o.behavior = 'safe' OR (p.settings ->> 'honorRetryAfter')::boolean) AS honor_retry_after,
       coalesce(o.settings ->> 'probationAction',
                CASE o.behavior WHEN 'safe' THEN 'hold' ELSE p.settings #>> '{probation,action}' END
       ) AS probation_action,
       coalesce((o.settings ->> 'retryTransportErrors')::boolean,
                o.behavior = 'safe' OR (p.settings ->> 'retryTransportErrors')::boolean) AS retry_transport_errors,
       s.expiration_time_utc,
       coalesce((o.settings ->> 'responseTimeoutInSeconds')::integer,
                (p.settings ->> 'ackTimeoutInSeconds')::double precision) AS response_timeout_seconds,
       coalesce(o.settings ->> 'minimumTlsVersionAllowed', '1.2') AS minimum_tls_version_allowed,
       o.settings ? 'certificateAuthorities' AS own_certificate_authorities,
       o.settings ? 'clientCertificate' AS client_certificate,
       o.settings #>> '{oauth2,tokenUrl}' AS oauth2_token_url, s.id AS subscription_id,
       CASE WHEN s.pulled THEN 'Queue' ELSE 'Push' END AS delivery_mode, s.lock_duration,
       coalesce(o.settings ->> 'messageFormat', 'None') AS message_format, o.destination AS destination_type
  FROM postrider_internal.event_subscriptions s
  JOIN postrider_internal.topics t ON t.id = s.topic_id
  JOIN postrider_internal.retry_policies p ON p.name = s.retry_policy
  JOIN postrider_internal.subscription_holds h ON h.subscription_id = s.id
 CROSS JOIN LATERAL (SELECT s.settings::jsonb AS settings OFFSET 0) j
 CROSS JOIN LATERAL (
       SELECT j.settings, coalesce(j.settings ->> 'behavior', 'safe') AS behavior,
              coalesce(j.settings #>> '{destination,endpointType}', 'WebHook') AS destination,
              (j.settings #>> '{retryPolicy,maxDeliveryAttempts}')::integer AS attempts,
              (j.settings #>> '{retryPolicy,eventTimeToLiveInMinutes}')::integer AS minutes) o
 WHERE s.deleted_at IS NULL;
COMMENT ON VIEW postrider.event_subscriptions IS
    'Event subscriptions with their effective settings. Endpoints are shown without their query string, which often '
    'holds a secret.';
COMMENT ON COLUMN postrider.event_subscriptions.topic IS 'Topic whose events it receives.';
COMMENT ON COLUMN postrider.event_subscriptions.subscription IS
    'Name of the event subscription, unique within its topic.';
COMMENT ON COLUMN postrider.event_subscriptions.endpoint_base_url IS
    'Endpoint that receives the events, without the query string, and without the path if message_format is not None; '
    'for another destination_type than WebHook its target, such as kafka://server:9093/topic. Empty if '
    'delivery_mode is Queue.';
COMMENT ON COLUMN postrider.event_subscriptions.destination_type IS
    'Type of the destination: WebHook, StorageQueue, ServiceBusQueue, ServiceBusTopic, EventHub, HybridConnection, '
    'Kafka or NatsJetStream. Without meaning if delivery_mode is Queue.';
COMMENT ON COLUMN postrider.event_subscriptions.message_format IS
    'Of topic postrider.system: the service that gets each event as a message: Slack, Teams or PagerDuty; None = none.';
COMMENT ON COLUMN postrider.event_subscriptions.delivery_mode IS
    'Push: postrider sends events to the endpoint. Queue: consumers receive them (pull delivery).';
COMMENT ON COLUMN postrider.event_subscriptions.lock_duration IS
    'Of delivery_mode Queue: how long a consumer has for an event that it received. Otherwise NULL.';
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
    'Effective honorRetryAfter: an endpoint''s Retry-After can delay the next attempt.';
COMMENT ON COLUMN postrider.event_subscriptions.probation_action IS
    'Effective probationAction, of deliveries that are due during a probation: hold, or documented: some end without '
    'an attempt.';
COMMENT ON COLUMN postrider.event_subscriptions.retry_transport_errors IS
    'Effective retryTransportErrors: an attempt without a response is retried, even if the status table forbids it.';
COMMENT ON COLUMN postrider.event_subscriptions.response_timeout_seconds IS
    'Seconds that the endpoint has for its response.';
COMMENT ON COLUMN postrider.event_subscriptions.expiration_time_utc IS
    'When it is deleted and receives no more events; NULL = never.';
COMMENT ON COLUMN postrider.event_subscriptions.minimum_tls_version_allowed IS
    'Lowest TLS version that its endpoint may use: 1.2 or 1.3.';
COMMENT ON COLUMN postrider.event_subscriptions.own_certificate_authorities IS
    'Whether the endpoint''s certificate must be from the event subscription''s own authorities instead of the '
    'system''s.';
COMMENT ON COLUMN postrider.event_subscriptions.client_certificate IS
    'Whether postrider sends a client certificate to its endpoint.';
COMMENT ON COLUMN postrider.event_subscriptions.oauth2_token_url IS
    'Source of the access tokens of its deliveries (OAuth 2.0 client credentials); NULL = no tokens.';
COMMENT ON COLUMN postrider.event_subscriptions.subscription_id IS
    'postrider''s id of the event subscription. One that is created again with the same name gets another id. Other '
    'views have it too: a query by it is fast.';
COMMENT ON COLUMN postrider.event_subscriptions.max_events_per_batch IS
    'Effective maxEventsPerBatch; 1 = each event alone. A batch is not larger, and does not wait to fill.';
COMMENT ON COLUMN postrider.event_subscriptions.preferred_batch_size_in_kilobytes IS
    'Effective preferredBatchSizeInKilobytes: a target; one larger event goes alone.';
COMMENT ON COLUMN postrider.event_subscriptions.max_concurrent_deliveries IS
    'maxConcurrentDeliveries as set: most requests in flight, shared by the nodes; NULL = as many as the endpoint can '
    'handle.';
COMMENT ON COLUMN postrider.event_subscriptions.delivery_rate IS
    'deliveryRate as set; NULL = no rate limit. postrider.delivery_rates has the limits that apply.';
COMMENT ON COLUMN postrider.event_subscriptions.provisioning_state IS
    'Event Grid''s provisioning state. Succeeded: ready for deliveries. Creating, Updating: the validation handshake '
    'is in progress. AwaitingManualAction: a person has to open validationUrl. Failed: the endpoint was not '
    'validated.';
COMMENT ON COLUMN postrider.event_subscriptions.hold IS
    'Why its deliveries wait without being attempted: paused, not_validated or probation; NULL = it has no hold.';
COMMENT ON COLUMN postrider.event_subscriptions.hold_cause IS 'Of a probation: the outcome of the last failure.';
COMMENT ON COLUMN postrider.event_subscriptions.hold_since IS 'When the hold began.';
COMMENT ON COLUMN postrider.event_subscriptions.hold_until IS
    'Of a probation: when one of its deliveries may be the next probe; never a past time. Another event subscription '
    'of the endpoint may be probed before. NULL = an operator or a handshake ends the hold.';
COMMENT ON COLUMN postrider.event_subscriptions.probing IS 'Whether the probe is in progress.';
COMMENT ON COLUMN postrider.event_subscriptions.held_deliveries IS
    'How many deliveries wait on hold now, without retries whose time has not come.';
COMMENT ON COLUMN postrider.event_subscriptions.signed IS
    'Whether its deliveries are signed (Standard Webhooks). The secrets are never shown.';
COMMENT ON COLUMN postrider.event_subscriptions.endpoint_validation IS
    'required: the endpoint must pass the validation handshake before the first delivery, see postrider.handshakes. '
    'skip: an operator skipped it.';
COMMENT ON COLUMN postrider.event_subscriptions.description IS 'What it is for, as it was set.';
COMMENT ON COLUMN postrider.event_subscriptions.labels IS 'Free labels, as they were set.';
COMMENT ON COLUMN postrider.event_subscriptions.created_at IS 'When it was created.';
COMMENT ON COLUMN postrider.event_subscriptions.updated_at IS 'When its settings were last changed.';

CREATE VIEW postrider.retry_policies AS
SELECT p.name, p.built_in, r.source, r."ackTimeoutInSeconds" AS ack_timeout_seconds, r.basis,
       r."stepsInSeconds" AS steps_seconds, r."tailInSeconds" AS tail_seconds,
       r."retryWindowInSeconds" AS retry_window_seconds, r."jitterFraction" AS jitter_fraction,
       r."jitterCapInSeconds" AS jitter_cap_seconds, r.expiry, t."default" AS default_ttl_minutes,
       t.least AS min_ttl_minutes, t.most AS max_ttl_minutes, a."default" AS default_max_attempts,
       a.least AS min_max_attempts, a.most AS max_max_attempts,
       r."honorRetryAfter" AS honor_retry_after, r."retryAfterCapInSeconds" AS retry_after_cap_seconds,
       r."retryTransportErrors" AS retry_transport_errors, r."deadLetterDefault" AS dead_letter_default,
       r."deadLetterDelayInSeconds" AS dead_letter_delay_seconds,
       r."deadLetterExportWindowInSeconds" AS dead_letter_export_window_seconds,
       r."lateResponseWindowInSeconds" AS late_response_window_seconds, r.batching, b.scope AS probation_scope,
       b.trigger AS probation_trigger, b.action AS probation_action, b."firstInSeconds" AS probation_first_seconds,
       b."maxInSeconds" AS probation_max_seconds, nullif(b."byOutcome", '{}') AS probation_by_outcome,
       p.created_at, p.updated_at
  FROM postrider_internal.retry_policies p
 CROSS JOIN jsonb_to_record(p.settings) AS r(source text, "ackTimeoutInSeconds" double precision,
       "lateResponseWindowInSeconds" double precision, basis text, "stepsInSeconds" double precision[],
       "tailInSeconds" double precision, "retryWindowInSeconds" double precision, "jitterFraction" double precision,
       "jitterCapInSeconds" double precision, expiry text, "maxDeliveryAttempts" jsonb,
       "eventTimeToLiveInMinutes" jsonb, "honorRetryAfter" boolean, "retryAfterCapInSeconds" double precision,
       "retryTransportErrors" boolean, "deadLetterDefault" text, "deadLetterDelayInSeconds" double precision,
       "deadLetterExportWindowInSeconds" double precision, batching boolean, probation jsonb)
 CROSS JOIN jsonb_to_record(r."maxDeliveryAttempts") AS a("default" integer, least integer, most integer)
 CROSS JOIN jsonb_to_record(r."eventTimeToLiveInMinutes") AS t("default" double precision, least double precision,
       most double precision)
 CROSS JOIN jsonb_to_record(r.probation) AS b(scope text, trigger integer, action text,
       "firstInSeconds" double precision, "maxInSeconds" double precision, "byOutcome" jsonb)
 WHERE p.deleted_at IS NULL;
COMMENT ON VIEW postrider.retry_policies IS
    'Retry policies, built-in ones and your own. The status tables are in postrider.retry_policy_cells.';
COMMENT ON COLUMN postrider.retry_policies.name IS 'Name of the policy.';
COMMENT ON COLUMN postrider.retry_policies.built_in IS
    'true: one of the six policies that follow Event Grid''s pages, which never change. false: your own.';
COMMENT ON COLUMN postrider.retry_policies.source IS
    'Page that documents it; of your own policy, the text that you set.';
COMMENT ON COLUMN postrider.retry_policies.ack_timeout_seconds IS
    'How long postrider waits for an endpoint''s response.';
COMMENT ON COLUMN postrider.retry_policies.basis IS
    'gap: a step is counted from the failed attempt; offset: from the first attempt.';
COMMENT ON COLUMN postrider.retry_policies.steps_seconds IS 'Retry schedule in seconds.';
COMMENT ON COLUMN postrider.retry_policies.tail_seconds IS 'Step that repeats after the last one.';
COMMENT ON COLUMN postrider.retry_policies.retry_window_seconds IS
    'No attempt is made later than this after time_to_live_since; NULL = no such limit.';
COMMENT ON COLUMN postrider.retry_policies.jitter_fraction IS 'Most jitter added to a step, as a fraction of it.';
COMMENT ON COLUMN postrider.retry_policies.jitter_cap_seconds IS 'Most jitter added to a step.';
COMMENT ON COLUMN postrider.retry_policies.expiry IS
    'at_ttl: a delivery ends when its time to live passes; next_attempt: when its next attempt is due after that.';
COMMENT ON COLUMN postrider.retry_policies.default_ttl_minutes IS 'Time to live of event subscriptions that set none.';
COMMENT ON COLUMN postrider.retry_policies.min_ttl_minutes IS 'Shortest time to live that may be set.';
COMMENT ON COLUMN postrider.retry_policies.max_ttl_minutes IS 'Longest time to live that may be set.';
COMMENT ON COLUMN postrider.retry_policies.default_max_attempts IS
    'Limit of attempts of event subscriptions that set none; NULL = no limit.';
COMMENT ON COLUMN postrider.retry_policies.min_max_attempts IS 'Lowest limit that may be set.';
COMMENT ON COLUMN postrider.retry_policies.max_max_attempts IS 'Highest limit that may be set.';
COMMENT ON COLUMN postrider.retry_policies.honor_retry_after IS
    'Under behavior documented: whether Retry-After is honored. Behavior safe always honors it.';
COMMENT ON COLUMN postrider.retry_policies.retry_after_cap_seconds IS 'Longest wait that Retry-After can cause.';
COMMENT ON COLUMN postrider.retry_policies.retry_transport_errors IS
    'Under behavior documented: whether an attempt without a response, such as a timeout, is retried even if the '
    'status table forbids it. Behavior safe always retries it.';
COMMENT ON COLUMN postrider.retry_policies.dead_letter_default IS
    'Under behavior documented: rows or none, the dead-letter destination if none is named. Behavior safe keeps rows.';
COMMENT ON COLUMN postrider.retry_policies.dead_letter_delay_seconds IS
    'Delay between the last attempt and the first export of the dead letter.';
COMMENT ON COLUMN postrider.retry_policies.dead_letter_export_window_seconds IS
    'How long a failed export is retried; 0 = it is not.';
COMMENT ON COLUMN postrider.retry_policies.late_response_window_seconds IS
    'How long after the start of an attempt a late success still counts; 0 = it does not.';
COMMENT ON COLUMN postrider.retry_policies.batching IS 'Whether event subscriptions may use batches.';
COMMENT ON COLUMN postrider.retry_policies.probation_scope IS
    'What a probation holds: none, endpoint (all event subscriptions with its URL), event_subscription, or both: '
    'trigger, first and max apply to the endpoint, by_outcome to the event subscription.';
COMMENT ON COLUMN postrider.retry_policies.probation_trigger IS
    'Failures in a row, of different events, that start a probation.';
COMMENT ON COLUMN postrider.retry_policies.probation_action IS
    'Under behavior documented: hold, or documented: some causes end deliveries without an attempt; of scope both, '
    'only those of the event subscription''s probation. Behavior safe always holds.';
COMMENT ON COLUMN postrider.retry_policies.probation_first_seconds IS
    'Duration of the first probation; doubled each time the probe fails.';
COMMENT ON COLUMN postrider.retry_policies.probation_max_seconds IS 'Longest probation.';
COMMENT ON COLUMN postrider.retry_policies.probation_by_outcome IS
    'Seconds of probation by the outcome of the failure, instead of first and max: other outcomes start none. Of scope '
    'both, those of the event subscription: other outcomes only count for the endpoint. NULL = independent of the '
    'outcome.';
COMMENT ON COLUMN postrider.retry_policies.created_at IS 'When the policy was created.';
COMMENT ON COLUMN postrider.retry_policies.updated_at IS 'When the policy was last changed.';

CREATE VIEW postrider.retry_policy_cells AS
SELECT c.policy, c.endpoint_kind, c.condition, c.action, postrider_internal.seconds(c.min_delay) AS min_delay_seconds
  FROM postrider_internal.retry_policy_cells c;
COMMENT ON VIEW postrider.retry_policy_cells IS
    'Status tables: what each response or error leads to under each policy.';
COMMENT ON COLUMN postrider.retry_policy_cells.policy IS 'Name of the policy.';
COMMENT ON COLUMN postrider.retry_policy_cells.endpoint_kind IS 'webhook or azure-resource.';
COMMENT ON COLUMN postrider.retry_policy_cells.condition IS
    'A status, an error (timeout, canceled, socket, dns, unauthorized, argument), a response of a broker (full, '
    'disabled, session), or other: every status, error and response without a row.';
COMMENT ON COLUMN postrider.retry_policy_cells.action IS
    'success, retry, never, or never_if_dead_letter: never if dead letters are kept, otherwise retry.';
COMMENT ON COLUMN postrider.retry_policy_cells.min_delay_seconds IS 'Shortest delay of a retry after the failure.';

CREATE VIEW postrider.nodes AS
SELECT n.id AS node, n.host, n.version, n.started_at, n.beat_at, n.consistency_repairs, n.time_scale
  FROM postrider_internal.nodes n;
COMMENT ON VIEW postrider.nodes IS
    'Nodes that deliver: one row for each process, until it stops or another node finds it dead. beat_at shows '
    'whether it is alive.';
COMMENT ON COLUMN postrider.nodes.node IS 'Name of the process, the one in delivery_attempts.node.';
COMMENT ON COLUMN postrider.nodes.host IS 'Machine it runs on.';
COMMENT ON COLUMN postrider.nodes.version IS 'Version of the program.';
COMMENT ON COLUMN postrider.nodes.started_at IS 'When it started.';
COMMENT ON COLUMN postrider.nodes.beat_at IS 'Its last heartbeat; there is one a second.';
COMMENT ON COLUMN postrider.nodes.consistency_repairs IS
    'Consistency repairs of its sweeper since it started. It should be 0.';
COMMENT ON COLUMN postrider.nodes.time_scale IS
    'By how much it divides every wait between attempts: 1, except under postrider dev --time-scale.';

CREATE VIEW postrider.storage AS
SELECT coalesce(parent.relname, c.relname)::text AS table_name,
       CASE WHEN parent.relname IS NOT NULL THEN to_date(right(c.relname, 8), 'YYYYMMDD') END AS day,
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
    'Table. events, delivery_history (finished deliveries) and delivery_attempts have a partition for each day; '
    'deliveries has the pending ones.';
COMMENT ON COLUMN postrider.storage.day IS 'UTC day of the partition; NULL for a table without partitions.';
COMMENT ON COLUMN postrider.storage.rows_estimate IS
    'Number of rows at PostgreSQL''s last count; NULL before the first.';
COMMENT ON COLUMN postrider.storage.total_bytes IS 'Bytes on disk, including indexes and TOAST.';
COMMENT ON COLUMN postrider.storage.index_bytes IS 'Bytes of its indexes.';

-- +goose Down
DROP VIEW postrider.storage, postrider.nodes, postrider.retry_policy_cells, postrider.retry_policies,
    postrider.event_subscriptions, postrider.topics;
