-- +goose Up
-- Operations on many dead letters, deliveries or events: redeliver, repair, resolve, purge, retry, cancel, erase.

-- An operation runs step by step: job_id is the job of the next step. cursor_at and cursor_id are its position: the
-- last dead letter that was checked (by the time it was written), or the last past event (by its day). A step checks a
-- fixed number, however few of them match. Of deliveries, cursor_delivery is the last one that was checked.
--
-- An operation on dead letters or deliveries first counts what its filter matches, with the same steps (counting). If
-- the number differs from expected_count, it ends as failed and has changed nothing.
CREATE TABLE postrider_internal.operations (
    id              uuid PRIMARY KEY,
    kind            text NOT NULL CHECK (kind IN ('redeliver', 'repair', 'resolve', 'purge', 'retry',
                        'cancel', 'redeliver_events', 'erase_subject')),
    state           text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'canceled', 'failed')),
    -- Of dead letters, or of deliveries: members are those of the API, in snake_case.
    filter          jsonb NOT NULL,
    -- The target; NULL = the own event subscription of each dead letter. target_id is its id at the start.
    topic           text,
    subscription    text,
    target_id       bigint,
    published_from  timestamptz,
    published_until timestamptz,
    -- Also redeliver what was redelivered before.
    again           boolean NOT NULL DEFAULT false,
    note            text, -- of a resolution
    -- Of a repair: the JSON merge patch, which may hold personal data and is removed at the end; what it changes; and
    -- whether an event that it does not change is redelivered.
    patch           text,
    paths           jsonb,
    include_unchanged boolean NOT NULL DEFAULT false,
    rate_per_second integer CHECK (rate_per_second >= 1),
    expected_count  bigint CHECK (expected_count >= 0),
    counting        boolean NOT NULL DEFAULT false,
    matched         bigint, -- so far, while counting
    done            bigint NOT NULL DEFAULT 0,
    skipped         bigint NOT NULL DEFAULT 0,
    failed          bigint NOT NULL DEFAULT 0,
    last_error      text,
    started_by      text NOT NULL,
    cursor_at       timestamptz NOT NULL DEFAULT '-infinity',
    cursor_id       uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    cursor_delivery bigint NOT NULL DEFAULT 0,
    -- An erasure has checked the events, and now checks the dead letters.
    of_dead_letters      boolean NOT NULL DEFAULT false,
    steps           bigint NOT NULL DEFAULT 0,
    job_id          bigint UNIQUE,
    created_at      timestamptz NOT NULL DEFAULT now(),
    finished_at     timestamptz,
    CONSTRAINT one_end CHECK ((state = 'running') = (finished_at IS NULL))
);
CREATE INDEX operations_created_idx ON postrider_internal.operations (created_at, id);
CREATE INDEX operations_running_idx ON postrider_internal.operations (id) WHERE state = 'running';

-- +goose Down
DROP TABLE postrider_internal.operations;
