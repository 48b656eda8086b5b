-- +goose Up
-- Topics, event subscriptions and retry policies, with their holds, rate limits and the encryption keys of their
-- secrets. The catalog has one version number. A publish filters events with the version in the node's memory, and its
-- transaction inserts only while that version is the newest: every later publish on every node uses a change that was
-- confirmed.

CREATE TABLE postrider_internal.catalog (
    one       boolean PRIMARY KEY DEFAULT true CHECK (one),
    version   bigint NOT NULL,
    -- What the deliveries of this database's nodes carry, so that a relay topic recognizes its own.
    server_id uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO postrider_internal.catalog (version) VALUES (1);

-- +goose StatementBegin
-- Changes wait for one another on the catalog's row, so versions are committed in order: a reader that has seen a
-- version has seen every change up to it. Publishes only read the row and do not wait.
--
-- A version is the microsecond of its change: a failover that loses the last changes must not give their versions to
-- others.
CREATE FUNCTION postrider_internal.next_catalog_version() RETURNS bigint LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE newest bigint;
BEGIN
    UPDATE postrider_internal.catalog SET version = greatest(version + 1,
        (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) RETURNING version INTO newest;
    RETURN newest;
END $$;

CREATE FUNCTION postrider_internal.stamp_catalog_version() RETURNS trigger LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.version := postrider_internal.next_catalog_version();
    NEW.updated_at := now();
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- A deleted policy keeps its row, as deleted event subscriptions that named it do. Putting its name again brings it
-- back.
CREATE TABLE postrider_internal.retry_policies (
    name       text PRIMARY KEY,
    built_in   boolean NOT NULL DEFAULT false,
    -- All settings as the REST API shows them, without the status table, which has rows. For an absent one the node
    -- would take Go's default, and the views none. retryWindowInSeconds and maxDeliveryAttempts.default may be null: no
    -- limit.
    settings   jsonb NOT NULL CHECK (
        jsonb_strip_nulls(settings) ?& ARRAY['ackTimeoutInSeconds', 'lateResponseWindowInSeconds', 'stepsInSeconds',
            'tailInSeconds', 'jitterFraction', 'jitterCapInSeconds', 'honorRetryAfter', 'retryAfterCapInSeconds',
            'retryTransportErrors', 'deadLetterDelayInSeconds', 'deadLetterExportWindowInSeconds', 'batching'] IS TRUE
        AND settings ? 'retryWindowInSeconds'
        AND jsonb_strip_nulls(settings -> 'maxDeliveryAttempts') ?& ARRAY['least', 'most'] IS TRUE
        AND settings -> 'maxDeliveryAttempts' ? 'default' IS TRUE
        AND jsonb_strip_nulls(settings -> 'eventTimeToLiveInMinutes') ?& ARRAY['default', 'least', 'most'] IS TRUE
        AND jsonb_strip_nulls(settings -> 'probation') ?& ARRAY['trigger', 'firstInSeconds', 'maxInSeconds',
            'byOutcome'] IS TRUE
        AND settings ->> 'basis' IN ('gap', 'offset') IS TRUE
        AND settings ->> 'expiry' IN ('at_ttl', 'next_attempt') IS TRUE
        AND settings ->> 'deadLetterDefault' IN ('none', 'rows') IS TRUE
        AND settings #>> '{probation,scope}' IN ('none', 'endpoint', 'event_subscription', 'both') IS TRUE
        AND settings #>> '{probation,action}' IN ('hold', 'documented') IS TRUE),
    version    bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    deleted_at timestamptz
);

CREATE TABLE postrider_internal.retry_policy_cells (
    policy        text NOT NULL REFERENCES postrider_internal.retry_policies ON DELETE CASCADE,
    endpoint_kind text NOT NULL CHECK (endpoint_kind IN ('webhook', 'azure-resource')),
    condition     text NOT NULL,
    action        text NOT NULL CHECK (action IN ('success', 'retry', 'never', 'never_if_dead_letter')),
    min_delay     interval NOT NULL DEFAULT '0',
    PRIMARY KEY (policy, endpoint_kind, condition)
);

CREATE TRIGGER stamp_version BEFORE INSERT OR UPDATE ON postrider_internal.retry_policies
    FOR EACH ROW EXECUTE FUNCTION postrider_internal.stamp_catalog_version();

-- +goose StatementBegin
-- A change of a cell is a change of its policy: policies are read again as a whole when the newest version among them
-- moved.
CREATE FUNCTION postrider_internal.touch_policies() RETURNS trigger LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE postrider_internal.retry_policies SET name = name
     WHERE name = CASE WHEN TG_OP = 'DELETE' THEN OLD.policy ELSE NEW.policy END;
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER touch_policy AFTER INSERT OR UPDATE OR DELETE ON postrider_internal.retry_policy_cells
    FOR EACH ROW EXECUTE FUNCTION postrider_internal.touch_policies();

-- +goose StatementBegin
-- The limits of deliveries under a policy, as policy.Resolve: those that the event subscription sets, brought into the
-- policy's range, or else the policy's.
CREATE FUNCTION postrider_internal.max_attempts(attempts integer, p postrider_internal.retry_policies) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN attempts IS NULL THEN (p.settings #>> '{maxDeliveryAttempts,default}')::integer
            ELSE least(greatest(attempts, (p.settings #>> '{maxDeliveryAttempts,least}')::integer),
                       (p.settings #>> '{maxDeliveryAttempts,most}')::integer) END;

-- In minutes. retention_days is the topic's retention, which bounds it; NULL = none.
CREATE FUNCTION postrider_internal.time_to_live(minutes integer, retention_days integer,
    p postrider_internal.retry_policies) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN least(
    CASE WHEN minutes IS NULL THEN (p.settings #>> '{eventTimeToLiveInMinutes,default}')::integer
         ELSE least(greatest(minutes, (p.settings #>> '{eventTimeToLiveInMinutes,least}')::integer),
                    (p.settings #>> '{eventTimeToLiveInMinutes,most}')::integer) END,
    retention_days * 24 * 60);
-- +goose StatementEnd

-- Deleted topics and event subscriptions keep their row: history, dead letters and the other nodes' caches refer to
-- it. The partial unique index frees the name.
CREATE TABLE postrider_internal.topics (
    id           bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    name         text NOT NULL,
    kind         text NOT NULL CHECK (kind IN ('basic', 'namespace')),
    input_schema text NOT NULL CHECK (input_schema IN ('EventGridSchema', 'CloudEventSchemaV1_0', 'CustomEventSchema')),
    input_schema_mapping jsonb CHECK ((input_schema_mapping IS NOT NULL) = (input_schema = 'CustomEventSchema')),
    event_retention_in_days integer CHECK (event_retention_in_days BETWEEN 1 AND 7),
    -- NULL = an event is stored each time that it is published.
    duplicate_detection_window_in_minutes integer CHECK (duplicate_detection_window_in_minutes BETWEEN 1 AND 10080),
    -- Whose event subscriptions deliver into the topic: it then accepts events of other topics.
    relay        text NOT NULL DEFAULT 'none' CHECK (relay IN ('none', 'azure')),
    key1_sealed  bytea NOT NULL,
    key2_sealed  bytea NOT NULL,
    key1_hash    bytea NOT NULL,
    key2_hash    bytea NOT NULL,
    version      bigint NOT NULL DEFAULT 0,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    deleted_at   timestamptz,
    CHECK ((event_retention_in_days IS NOT NULL) = (kind = 'namespace')),
    CHECK (relay = 'none' OR kind = 'basic')
);
CREATE UNIQUE INDEX topics_name_key ON postrider_internal.topics (name) WHERE deleted_at IS NULL;
-- Names that differ only in letter case conflict. Collation C: names are ASCII, and the database's own may have another
-- idea of I.
CREATE UNIQUE INDEX topics_lower_name_key ON postrider_internal.topics (lower(name COLLATE "C"))
WHERE deleted_at IS NULL;
CREATE INDEX topics_version_idx ON postrider_internal.topics (version);
CREATE TRIGGER stamp_version BEFORE INSERT OR UPDATE ON postrider_internal.topics
    FOR EACH ROW WHEN (current_setting('postrider.resealing', true) IS DISTINCT FROM 'on')
        EXECUTE FUNCTION postrider_internal.stamp_catalog_version();

CREATE TABLE postrider_internal.event_subscriptions (
    id                                bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    topic_id                          bigint NOT NULL REFERENCES postrider_internal.topics,
    name                              text NOT NULL,
    -- The settings as their owner stated them, without the secret ones; absent = default. Those are sealed, see
    -- catalog.SubscriptionSpec. json and not jsonb, which would write the numbers of a filter its own way.
    -- The views read it as jsonb, which cannot hold every text that json can.
    settings                          json NOT NULL CHECK (settings::jsonb IS NOT NULL),
    secrets_sealed                    bytea,
    -- Derived from the settings, for statements and indexes.
    endpoint_base_url                 text NOT NULL,
    -- A keyed hash of the whole URL: event subscriptions with the same one share an endpoint. NULL = no endpoint.
    endpoint_hash                     bytea,
    -- Whether consumers receive the events, and how long each then has for an event; NULL = postrider sends them.
    pulled                            boolean NOT NULL GENERATED ALWAYS AS (
        coalesce(settings #>> '{deliveryConfiguration,deliveryMode}' = 'Queue', false)) STORED,
    lock_duration                     interval GENERATED ALWAYS AS (
        CASE WHEN settings #>> '{deliveryConfiguration,deliveryMode}' = 'Queue' THEN make_interval(secs => coalesce((
            settings #>> '{deliveryConfiguration,queue,receiveLockDurationInSeconds}')::integer, 60)) END) STORED,
    -- Whether it sets a deliveryRate.
    rate_limited                      boolean NOT NULL GENERATED ALWAYS AS (
        coalesce(json_typeof(settings -> 'deliveryRate') = 'object', false)) STORED,
    event_delivery_schema             text NOT NULL
        CHECK (event_delivery_schema IN ('EventGridSchema', 'CloudEventSchemaV1_0', 'CustomInputSchema')),
    retry_policy                      text NOT NULL REFERENCES postrider_internal.retry_policies,
    expiration_time_utc               timestamptz,
    -- The secrets that its deliveries are signed with, as JSON; NULL = they are not signed.
    signing_sealed                    bytea,
    provisioning_state                text NOT NULL DEFAULT 'Succeeded'
                                      CHECK (provisioning_state IN ('Creating', 'Updating', 'Deleting', 'Succeeded',
                                          'Canceled', 'Failed', 'AwaitingManualAction')),
    -- What has validated the endpoint, or is to: the newest handshake that it was stored with.
    endpoint_validation               text NOT NULL DEFAULT 'skip' CHECK (endpoint_validation IN ('required', 'skip')),
    handshake_id                      bigint,
    version                           bigint NOT NULL DEFAULT 0,
    created_at                        timestamptz NOT NULL DEFAULT now(),
    updated_at                        timestamptz NOT NULL DEFAULT now(),
    deleted_at                        timestamptz,
    drained_at                        timestamptz,
    CONSTRAINT pulled_or_sent CHECK (pulled = (endpoint_hash IS NULL))
);
CREATE UNIQUE INDEX event_subscriptions_name_key ON postrider_internal.event_subscriptions (topic_id, name)
WHERE deleted_at IS NULL;
CREATE UNIQUE INDEX event_subscriptions_lower_name_key ON postrider_internal.event_subscriptions (topic_id,
    lower(name COLLATE "C"))
    WHERE deleted_at IS NULL;
CREATE INDEX event_subscriptions_version_idx ON postrider_internal.event_subscriptions (version);
CREATE INDEX event_subscriptions_handshake_idx ON postrider_internal.event_subscriptions (handshake_id)
WHERE handshake_id IS NOT NULL;
CREATE INDEX event_subscriptions_undrained_idx ON postrider_internal.event_subscriptions (id)
WHERE deleted_at IS NOT NULL AND drained_at IS NULL;
CREATE TRIGGER stamp_version BEFORE INSERT OR UPDATE OF topic_id, name, settings, secrets_sealed, endpoint_base_url,
        event_delivery_schema, retry_policy, expiration_time_utc, signing_sealed, endpoint_validation,
        provisioning_state, deleted_at
    ON postrider_internal.event_subscriptions
    FOR EACH ROW WHEN (current_setting('postrider.resealing', true) IS DISTINCT FROM 'on')
        EXECUTE FUNCTION postrider_internal.stamp_catalog_version();

-- The holds of an event subscription, apart from its configuration: they change without a new version of the catalog. A
-- row exists only if something differs, or differed, from the open state. Several causes may hold at once; hold names
-- the one that views show.
--
-- With stop_time_to_live a pause does not count for the time to live. The resume (resumed_at) first moves
-- time_to_live_since of all pending deliveries by the pause's length, step by step (moved_to). The pause holds until
-- then.
CREATE TABLE postrider_internal.event_subscription_states (
    subscription_id      bigint PRIMARY KEY REFERENCES postrider_internal.event_subscriptions,
    paused_since         timestamptz,
    stop_time_to_live    boolean NOT NULL DEFAULT false,
    resumed_at           timestamptz,
    moved_to             bigint NOT NULL DEFAULT 0,
    not_validated_since  timestamptz,
    hold                 text GENERATED ALWAYS AS (CASE WHEN paused_since IS NOT NULL THEN 'paused'
                              WHEN not_validated_since IS NOT NULL THEN 'not_validated' END) STORED,
    updated_at           timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- What has failed since its last success: an endpoint with all event subscriptions that name it (delayed delivery,
-- 2019, 2021 and 2026), or one event subscription (probation of namespaces and of 2026). The policy's probation_scope
-- says which, probation_key names it. since is set while deliveries are held. A row exists only from a failure to the
-- next success. failed_events are those that failures_in_a_row counts until the hold begins: one event counts once for
-- all event subscriptions of an endpoint. condition is the result of the attempt behind cause, as the status table
-- spells it: "404", "timeout". It is "other" while nothing is held.
CREATE TABLE postrider_internal.probations (
    probation_key             bytea PRIMARY KEY,
    endpoint_base_url    text NOT NULL,
    since                timestamptz,
    until                timestamptz,
    cause                text,
    condition            text,
    step                 integer NOT NULL DEFAULT 0,
    failures_in_a_row    integer NOT NULL DEFAULT 0,
    failed_events        uuid[],
    probe_job_id         bigint,
    updated_at           timestamptz NOT NULL DEFAULT now(),
    -- Whether a notice of the beginning was stored: then one of the end is, and only then. Deliveries of
    -- postrider.system cause no notice of a probation, which would fail in the same way.
    notified                 boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);
CREATE INDEX probations_held_idx ON postrider_internal.probations (until) WHERE since IS NOT NULL;

-- +goose StatementBegin
-- The keys of the probations of an event subscription under a policy of this scope; NULL without an endpoint. While two
-- hold its deliveries, the first one decides.
CREATE FUNCTION postrider_internal.probation_keys(scope text, endpoint_hash bytea, subscription_id bigint)
    RETURNS bytea[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN endpoint_hash IS NULL THEN NULL
            WHEN scope = 'endpoint' THEN ARRAY[endpoint_hash]
            WHEN scope = 'event_subscription' THEN ARRAY[int8send(subscription_id)]
            WHEN scope = 'both' THEN ARRAY[endpoint_hash, int8send(subscription_id)] END;
-- +goose StatementEnd

-- The limits on deliveries: those that event subscriptions set (deliveryRate), and the rates of operations. Endpoints
-- that have requested to wait (429, and 503 with Retry-After) have a row, too.
--
-- Each row gives permits to one request after the other: next_at is the first time for which no request has a permit.
-- A job that is created for a delivery takes its permits in the same statement, so that a crash loses none, and all
-- nodes together keep one limit. key is subscription:ID, host:HOST, operation:ID or, for an endpoint, endpoint:HASH.
CREATE TABLE postrider_internal.delivery_rates (
    key          text PRIMARY KEY,
    next_at      timestamptz NOT NULL DEFAULT '-infinity',
    -- The time between two requests or events when next_at was set: a changed limit changes the wait with it.
    step         interval,
    -- Until when an endpoint is closed: then one request tries, and closes it for others for as long as it may take.
    -- Its success deletes the row.
    closed_until timestamptz
) WITH (fillfactor = 50);

-- +goose StatementBegin
-- The row of delivery_rates that closes the endpoint of an event subscription; NULL if behavior is documented.
CREATE FUNCTION postrider_internal.closed_key(s postrider_internal.event_subscriptions) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN s.settings ->> 'behavior' IS DISTINCT FROM 'documented'
            THEN 'endpoint:' || encode(s.endpoint_hash, 'hex') END;
-- +goose StatementEnd

-- Several causes may hold at once: a pause and a missing validation come before a probation.
CREATE VIEW postrider_internal.subscription_holds AS
SELECT s.id AS subscription_id, coalesce(st.hold, CASE WHEN r.since IS NOT NULL THEN 'probation' END) AS hold,
       CASE st.hold WHEN 'paused' THEN st.paused_since WHEN 'not_validated' THEN st.not_validated_since
           ELSE r.since END AS since,
       CASE WHEN st.hold IS NULL THEN r.cause END AS cause,
       CASE WHEN st.hold IS NULL AND r.since IS NOT NULL THEN greatest(r.until, now()) END AS until,
       st.hold IS NULL AND EXISTS (SELECT FROM postrider_internal.river_job j
                                    WHERE j.id = r.probe_job_id AND j.finalized_at IS NULL) AS probing,
       coalesce(st.stop_time_to_live, false) AS time_to_live_stopped, st.resumed_at IS NOT NULL AS resuming,
       CASE WHEN st.hold IS NOT NULL THEN st.hold
            WHEN r.since IS NOT NULL THEN 'probation'
            WHEN s.rate_limited OR n.closed_until > now() THEN 'rate_limited'
            ELSE 'admission' END AS delivery_hold
  FROM postrider_internal.event_subscriptions s
  JOIN postrider_internal.retry_policies p ON p.name = s.retry_policy
  LEFT JOIN postrider_internal.event_subscription_states st ON st.subscription_id = s.id
 CROSS JOIN LATERAL (SELECT postrider_internal.probation_keys(p.settings #>> '{probation,scope}', s.endpoint_hash,
        s.id) AS keys) k
  LEFT JOIN postrider_internal.probations f ON f.since IS NOT NULL AND f.probation_key = k.keys[1]
  LEFT JOIN postrider_internal.probations o ON o.since IS NOT NULL AND o.probation_key = k.keys[2]
 CROSS JOIN LATERAL (SELECT coalesce(f.since, o.since) AS since, greatest(f.until, o.until) AS until,
        coalesce(f.cause, o.cause) AS cause,
        CASE WHEN f.since IS NULL THEN o.probe_job_id ELSE f.probe_job_id END AS probe_job_id) r
  LEFT JOIN postrider_internal.delivery_rates n ON n.key = postrider_internal.closed_key(s);
COMMENT ON VIEW postrider_internal.subscription_holds IS
    'Why deliveries of an event subscription wait now; one row for each event subscription, hold is NULL if they do '
        'not wait. Readers of this view need not know the tables of jobs.';
COMMENT ON COLUMN postrider_internal.subscription_holds.hold IS 'paused, not_validated or probation; NULL = none.';
COMMENT ON COLUMN postrider_internal.subscription_holds.cause IS 'Of a probation: the outcome of the last failure.';
COMMENT ON COLUMN postrider_internal.subscription_holds.until IS
    'Of a probation: when a delivery of this event subscription may be the next probe, never a past time. While two '
        'hold its deliveries, the later of their times.';
COMMENT ON COLUMN postrider_internal.subscription_holds.probing IS 'Of a probation: whether the probe is in progress.';
COMMENT ON COLUMN postrider_internal.subscription_holds.time_to_live_stopped IS
    'Of a pause: it does not count toward the time to live.';
COMMENT ON COLUMN postrider_internal.subscription_holds.resuming IS
    'Of a pause: it ends as soon as the deliveries'' time to live was moved.';
COMMENT ON COLUMN postrider_internal.subscription_holds.delivery_hold IS
    'What its deliveries on hold wait for now: its hold, or else rate_limited or admission. The row of a delivery or '
        'batch keeps the hold that it had when it began to wait.';

-- +goose StatementBegin
-- The hold that a pending delivery or batch without a hold of its own will meet: that of its event subscription, unless
-- its attempt is in progress or the probe, or a consumer has locked it. delivery_hold is that of subscription_holds;
-- job_id is 0 if it has no job. STRICT: for most deliveries delivery_hold is NULL, and nothing is read. The users of
-- views may not read the tables of jobs.
CREATE FUNCTION postrider_internal.hold_ahead(delivery_hold text, pulled boolean, job_id bigint) RETURNS text
LANGUAGE sql STABLE STRICT PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN CASE WHEN delivery_hold IN ('paused', 'not_validated', 'probation') AND NOT (pulled AND job_id > 0)
                 AND NOT EXISTS (
                     SELECT FROM postrider_internal.river_job j WHERE j.id = hold_ahead.job_id
                        AND (j.state = 'running' OR EXISTS (
                             SELECT FROM postrider_internal.probations r WHERE r.probe_job_id = j.id)))
            THEN delivery_hold END;
-- +goose StatementEnd

-- Which encryption keys have sealed something here: a node with the wrong key must fail at its start, not at its first
-- POST.
CREATE TABLE postrider_internal.encryption_keys (
    key_id     text PRIMARY KEY,
    proof      bytea NOT NULL,
    -- What keyed hashes are made with, sealed with this key: the same for all keys, so that hashes outlive a rotation.
    mac_sealed bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- Nothing is sealed with it any more, and nothing may be.
    retired_at timestamptz
);

-- +goose StatementBegin
-- Rejects a value that a node without the new key has sealed with a retired key: no node could open it later. The
-- arguments are the sealed columns. A key's id is bytes 2 to 9 of a sealed value. Share-locking the key's row makes its
-- retirement wait for this commit.
CREATE FUNCTION postrider_internal.reject_retired_keys() RETURNS trigger LANGUAGE plpgsql SET bytea_output = 'hex'
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE retired text;
BEGIN
    FOR retired IN SELECT k.key_id FROM postrider_internal.encryption_keys k
     WHERE k.key_id IN (SELECT substr(to_jsonb(NEW) ->> c, 5, 16) FROM unnest(TG_ARGV) c) ORDER BY k.key_id FOR SHARE
     LOOP
        CONTINUE WHEN NOT EXISTS (SELECT FROM postrider_internal.encryption_keys k WHERE k.key_id = retired
            AND k.retired_at IS NOT NULL);
        RAISE EXCEPTION 'encryption key % is retired: nothing may be sealed with it', retired
            USING ERRCODE = 'object_not_in_prerequisite_state',
                HINT = 'Restart this node with the key that took its place as POSTRIDER_ENCRYPTION_KEY.';
    END LOOP;
    RETURN NEW;
END $$;
-- +goose StatementEnd

CREATE TRIGGER reject_retired_keys BEFORE INSERT OR UPDATE OF key1_sealed, key2_sealed ON postrider_internal.topics
    FOR EACH ROW EXECUTE FUNCTION postrider_internal.reject_retired_keys('key1_sealed', 'key2_sealed');
CREATE TRIGGER reject_retired_keys BEFORE INSERT OR UPDATE OF secrets_sealed, signing_sealed
    ON postrider_internal.event_subscriptions
    FOR EACH ROW EXECUTE FUNCTION postrider_internal.reject_retired_keys('secrets_sealed', 'signing_sealed');

-- +goose Down
DROP TABLE postrider_internal.encryption_keys;
DROP FUNCTION postrider_internal.hold_ahead;
DROP VIEW postrider_internal.subscription_holds;
DROP FUNCTION postrider_internal.closed_key, postrider_internal.probation_keys, postrider_internal.max_attempts,
    postrider_internal.time_to_live;
DROP TABLE postrider_internal.delivery_rates, postrider_internal.probations,
    postrider_internal.event_subscription_states, postrider_internal.event_subscriptions, postrider_internal.topics,
    postrider_internal.retry_policy_cells, postrider_internal.retry_policies;
DROP FUNCTION postrider_internal.next_catalog_version;
DROP TABLE postrider_internal.catalog;
DROP FUNCTION postrider_internal.reject_retired_keys, postrider_internal.touch_policies,
    postrider_internal.stamp_catalog_version;
