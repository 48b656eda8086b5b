-- +goose Up
-- Pending deliveries, finished ones, and their attempts.

CREATE SEQUENCE postrider_internal.deliveries_id_seq;

-- Unfinished deliveries only: a small hot table. Finishing moves the row to delivery_history; keeping it here would
-- be an update of indexed columns, which PostgreSQL cannot do in place, and a table that never stops growing.
CREATE TABLE postrider_internal.deliveries (
    id               bigint PRIMARY KEY DEFAULT nextval('postrider_internal.deliveries_id_seq'),
    subscription_id  bigint NOT NULL,
    topic_id         bigint NOT NULL,
    event_uuid       uuid NOT NULL,
    event_day        date NOT NULL,
    attempts         integer NOT NULL DEFAULT 0,
    skipped_offsets    integer NOT NULL DEFAULT 0,
    reruns           integer NOT NULL DEFAULT 0,
    -- Size of the event's body, and of a custom event's envelope: batches are cut without reading the event.
    event_bytes      integer NOT NULL,
    -- Re-runs of the attempt that is due, kept while the delivery is on hold and has no job.
    held_reruns      integer NOT NULL DEFAULT 0,
    -- The hold that the due attempt had to wait for; the attempt stores it.
    last_hold        text,
    last_status      integer,
    job_id           bigint,
    batch_id         bigint,
    -- Operations exclude deliveries that are created later. time_to_live_since is no time of creation: the end of a
    -- pause moves it.
    created_at       timestamptz NOT NULL DEFAULT now(),
    time_to_live_since       timestamptz NOT NULL,
    next_attempt_at  timestamptz NOT NULL,
    -- The time that the policy chose for the next attempt, if the time to live ends earlier: next_attempt_at is its
    -- end. No attempt is made before not_before, even if the delivery gets more time.
    not_before       timestamptz,
    first_attempt_at timestamptz,
    last_attempt_at  timestamptz,
    hold             text CHECK (hold IN ('paused', 'not_validated', 'probation', 'admission', 'rate_limited')),
    last_outcome     text,
    redelivered_from uuid,
    operation_id     uuid, -- the operation that redelivered it
    -- Waits for the next batch of its event subscription. It is a separate column for indexes: an index on job_id would
    -- prevent in-place updates after failed attempts.
    open             boolean GENERATED ALWAYS AS (
                     job_id IS NULL AND batch_id IS NULL AND hold IS NULL AND NOT pulled) STORED,
    -- Its consumer pulls it: it waits for a receive, or job_id is the job of a consumer's lock.
    pulled           boolean NOT NULL DEFAULT false,
    -- When consumers may receive it; NULL if it is not available. An index on next_attempt_at would prevent in-place
    -- updates after failed attempts.
    available_at     timestamptz GENERATED ALWAYS AS (
                     CASE WHEN job_id IS NULL AND batch_id IS NULL AND hold IS NULL AND pulled
                     THEN next_attempt_at END) STORED,
    CONSTRAINT one_owner CHECK (num_nonnulls(job_id, batch_id, hold) <= 1)
) WITH (
    fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000
);

-- A backlog has few event subscriptions, so PostgreSQL would expect to find rows of any of them soon by reading in
-- order of id: without pending deliveries it read half a million rows. With 1,000 distinct values it uses the index
-- below.
ALTER TABLE postrider_internal.deliveries ALTER subscription_id SET (n_distinct = 1000);
ALTER SEQUENCE postrider_internal.deliveries_id_seq OWNED BY postrider_internal.deliveries.id;
-- An index of all rows with the id in a later column must not exist: PostgreSQL also uses it for a search by ids, once
-- for each id. Of a table that had one row when it was last analyzed, it assumes that every index has one page, and
-- then both indexes cost the same. Beside a long transaction, a node recorded nothing for half a minute. The condition
-- is always true, follows from each condition on the column, and does not follow from a list of ids.
CREATE INDEX deliveries_subscription_idx ON postrider_internal.deliveries (subscription_id, id)
WHERE subscription_id IS NOT NULL;
CREATE INDEX deliveries_event_idx ON postrider_internal.deliveries (event_uuid);
-- The deliveries that the next batch of an event subscription is cut from: without job, batch and hold.
CREATE INDEX deliveries_open_idx ON postrider_internal.deliveries (subscription_id, id) WHERE open;
-- The deliveries that consumers may receive, in their order, and by age for the ends of the time to live.
CREATE INDEX deliveries_available_idx ON postrider_internal.deliveries (subscription_id, available_at, id)
WHERE available_at IS NOT NULL;
CREATE INDEX deliveries_available_age_idx ON postrider_internal.deliveries (subscription_id, time_to_live_since)
WHERE available_at IS NOT NULL;
-- The redeliveries of an operation; other deliveries have no entry.
CREATE INDEX deliveries_operation_idx ON postrider_internal.deliveries (operation_id, id)
WHERE operation_id IS NOT NULL;
CREATE INDEX deliveries_batch_idx ON postrider_internal.deliveries (batch_id) WHERE batch_id IS NOT NULL;
-- Deliveries on hold, oldest first: for releases and for ends of the time to live.
CREATE INDEX deliveries_held_idx ON postrider_internal.deliveries (subscription_id, time_to_live_since, id)
WHERE hold IS NOT NULL;

-- Available deliveries of event subscriptions on hold. Their rows stay as they are: a pause may begin and end with
-- millions of them.
CREATE VIEW postrider_internal.held_available AS
SELECT d.id, d.subscription_id
  FROM postrider_internal.event_subscription_states st
  JOIN postrider_internal.deliveries d ON d.subscription_id = st.subscription_id
 WHERE st.hold IS NOT NULL AND d.available_at IS NOT NULL;
COMMENT ON VIEW postrider_internal.held_available IS
    'Available deliveries that no consumer may receive, because their event subscription is on hold.';

CREATE TABLE postrider_internal.delivery_history (
    id               bigint NOT NULL,
    day              date NOT NULL,
    subscription_id  bigint NOT NULL,
    topic_id         bigint NOT NULL,
    event_uuid       uuid NOT NULL,
    event_day        date NOT NULL,
    attempts         integer NOT NULL,
    reruns           integer NOT NULL,
    last_status      integer,
    batch_id         bigint,
    time_to_live_since       timestamptz NOT NULL,
    first_attempt_at timestamptz,
    last_attempt_at  timestamptz,
    finished_at      timestamptz NOT NULL,
    state            text NOT NULL CHECK (state IN ('delivered', 'dead_lettered', 'dropped', 'canceled')),
    reason           text,
    last_outcome     text,
    redelivered_from uuid,
    operation_id     uuid,
    dead_letter_id   uuid,
    PRIMARY KEY (id, day)
) PARTITION BY RANGE (day);
CREATE INDEX delivery_history_event_idx ON postrider_internal.delivery_history (event_uuid);
CREATE INDEX delivery_history_subscription_idx ON postrider_internal.delivery_history (subscription_id, id);
CREATE INDEX delivery_history_operation_idx ON postrider_internal.delivery_history (operation_id, id)
    WHERE operation_id IS NOT NULL;
-- Rows are in order of time, so a summary of each 128 pages finds a period with less than a hundredth of a B-tree's
-- size. An insert updates it only when a page's summary changes. With 32 pages, autovacuum's list of summaries to
-- create filled up at 5,000 deliveries/s, and the log reported it each time.
CREATE INDEX delivery_history_time_idx ON postrider_internal.delivery_history USING brin (finished_at)
WITH (autosummarize = on);

-- One row for each HTTP request, with the reason for the time of the next one. delivery_id is NULL for a batch.
CREATE TABLE postrider_internal.delivery_attempts (
    day             date NOT NULL,
    delivery_id     bigint,
    batch_id        bigint,
    subscription_id bigint NOT NULL,
    job_id          bigint NOT NULL,
    number          integer NOT NULL,
    reruns          integer NOT NULL DEFAULT 0,
    due_at          timestamptz,
    started_at      timestamptz NOT NULL,
    duration_us     bigint NOT NULL,
    dns_us          bigint,
    connect_us      bigint,
    tls_us          bigint,
    first_byte_us   bigint,
    status          integer,
    outcome         text NOT NULL,
    error           text,
    verdict         text NOT NULL,
    next_attempt_at timestamptz,
    rule            text NOT NULL,
    step_ms         bigint,
    floor_ms        bigint,
    jitter_ms       bigint,
    retry_after_ms  bigint,
    hold            text,
    skipped_offsets   integer NOT NULL DEFAULT 0,
    late            boolean NOT NULL DEFAULT false,
    node            text NOT NULL,
    request_headers bytea, -- without secrets; NULL of a success without a response body
    response_headers bytea,
    response_excerpt bytea
) PARTITION BY RANGE (day);
-- It has no key, and a publication of all tables would reject changes. Only with wal_level = logical does this cost
-- anything: the old row is then logged.
ALTER TABLE postrider_internal.delivery_attempts REPLICA IDENTITY FULL;
CREATE INDEX delivery_attempts_delivery_idx ON postrider_internal.delivery_attempts (delivery_id);
CREATE INDEX delivery_attempts_batch_idx ON postrider_internal.delivery_attempts (batch_id) WHERE batch_id IS NOT NULL;
CREATE INDEX delivery_attempts_time_idx ON postrider_internal.delivery_attempts USING brin (started_at)
WITH (autosummarize = on);
-- Failed requests, and those that a crash interrupted. A first attempt that succeeds has no entry.
CREATE INDEX delivery_attempts_failed_idx ON postrider_internal.delivery_attempts (subscription_id, started_at)
WHERE verdict <> 'deliver';
CREATE INDEX delivery_attempts_rerun_idx ON postrider_internal.delivery_attempts (started_at) WHERE reruns > 0;

-- +goose Down
DROP VIEW postrider_internal.held_available;
DROP TABLE postrider_internal.delivery_attempts, postrider_internal.delivery_history, postrider_internal.deliveries;
