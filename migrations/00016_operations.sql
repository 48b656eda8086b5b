-- +goose Up
-- A redelivery or a purge of many, step by step: job_id is the job of the next one. cursor_at and cursor_id are the place it has come to, the dead
-- letter (by the time it was given up) or the past event (by its day) that was looked at last.
CREATE TABLE postrider_internal.operations (
    id              uuid PRIMARY KEY,
    kind            text NOT NULL CHECK (kind IN ('redeliver', 'purge', 'redeliver_events')),
    state           text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'canceled', 'failed')),
    filter          jsonb NOT NULL,
    -- Where to: of dead letters NULL for their own event subscription. target_id is what the two names meant at the start.
    topic           text,
    subscription    text,
    target_id       bigint,
    published_from  timestamptz,
    published_until timestamptz,
    rate_per_second integer CHECK (rate_per_second >= 1),
    matched         bigint,
    done            bigint NOT NULL DEFAULT 0,
    skipped         bigint NOT NULL DEFAULT 0,
    failed          bigint NOT NULL DEFAULT 0,
    last_error      text,
    started_by      text NOT NULL,
    cursor_at       timestamptz NOT NULL DEFAULT '-infinity',
    cursor_id       uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    job_id          bigint UNIQUE,
    created_at      timestamptz NOT NULL DEFAULT now(),
    finished_at     timestamptz,
    CONSTRAINT one_end CHECK ((state = 'running') = (finished_at IS NULL))
);
CREATE INDEX operations_created_idx ON postrider_internal.operations (created_at, id);
CREATE INDEX operations_running_idx ON postrider_internal.operations (id) WHERE state = 'running';

-- +goose StatementBegin
-- Starts an operation: its row and the job of its first step. The audit outlives what is erased, so of a subject it has that there was one: true.
CREATE FUNCTION postrider_internal.start_operation(o postrider_internal.operations, actor text, address text) RETURNS uuid LANGUAGE plpgsql AS $$
BEGIN
    IF o.rate_per_second < 1 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', COLUMN = 'rate_per_second', MESSAGE = format('rate_per_second must be 1 or more, is %s', o.rate_per_second), HINT = 'NULL is as fast as it goes.';
    END IF;
    o.id := postrider_internal.new_uuid();
    INSERT INTO postrider_internal.operations (id, kind, filter, topic, subscription, target_id, published_from, published_until, rate_per_second, matched, started_by, job_id, cursor_at)
    VALUES (o.id, o.kind, o.filter, o.topic, o.subscription, o.target_id, o.published_from, o.published_until, o.rate_per_second, o.matched, coalesce(actor, session_user),
            nextval('postrider_internal.river_job_id_seq'), coalesce(o.cursor_at, '-infinity')) RETURNING * INTO o;
    INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at)
    VALUES (o.job_id, 'available', jsonb_build_object('o', o.id), 'operation', 'operations', 1, 1000, now());
    PERFORM pg_notify('postrider_internal.river_insert', '{"queue":"operations"}');
    PERFORM postrider_internal.note_audit(actor, address, 'operation_started', o.topic, o.subscription,
        jsonb_build_object('operationId', o.id, 'kind', o.kind, 'matched', o.matched, 'ratePerSecond', o.rate_per_second,
            'filter', (SELECT coalesce(jsonb_object_agg(key, CASE WHEN key IN ('subject', 'subject_prefix') THEN 'true' ELSE value END), '{}') FROM jsonb_each(o.filter))));
    RETURN o.id;
END $$;

-- Without a word on redelivered, those that were redelivered before are left alone.
CREATE FUNCTION postrider_internal.redeliver_all(filter jsonb, subscription text, topic text, rate_per_second integer, actor text, address text) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
    o postrider_internal.operations;
BEGIN
    PERFORM postrider_internal.dead_letter_condition(filter);
    o.kind := 'redeliver';
    o.filter := '{"redelivered": false}'::jsonb || filter;
    IF subscription IS NOT NULL THEN
        o.topic := coalesce(topic, filter ->> 'topic');
        IF o.topic IS NULL THEN
            RAISE EXCEPTION USING ERRCODE = '22023', COLUMN = 'topic', MESSAGE = 'topic is required with subscription, unless filter has one';
        END IF;
        o.subscription := subscription;
        o.target_id := postrider_internal.redelivery_target(o.topic, subscription);
    ELSIF topic IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023', COLUMN = 'subscription', MESSAGE = 'subscription is required with topic';
    END IF;
    o.rate_per_second := redeliver_all.rate_per_second;
    o.matched := postrider_internal.count_dead_letters(o.filter, now());
    RETURN postrider_internal.start_operation(o, actor, address);
END $$;

CREATE FUNCTION postrider_internal.purge_all(filter jsonb, rate_per_second integer, actor text, address text) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
    o postrider_internal.operations;
BEGIN
    o.kind := 'purge';
    o.matched := postrider_internal.count_dead_letters(filter, now());
    o.filter := purge_all.filter;
    o.rate_per_second := purge_all.rate_per_second;
    RETURN postrider_internal.start_operation(o, actor, address);
END $$;

CREATE FUNCTION postrider_internal.redeliver_events(topic text, subscription text, published_from timestamptz, published_until timestamptz, rate_per_second integer, actor text, address text)
    RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
    o postrider_internal.operations;
    missing text := CASE WHEN topic IS NULL THEN 'topic' WHEN subscription IS NULL THEN 'subscription' WHEN published_from IS NULL THEN 'published_from' END;
BEGIN
    IF missing IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023', COLUMN = missing, MESSAGE = missing || ' is required';
    END IF;
    o.kind := 'redeliver_events';
    o.target_id := postrider_internal.redelivery_target(topic, subscription);
    o.topic := redeliver_events.topic;
    o.subscription := redeliver_events.subscription;
    o.published_from := redeliver_events.published_from;
    o.published_until := least(redeliver_events.published_until, now());
    IF NOT isfinite(o.published_from) OR o.published_from >= o.published_until THEN
        RAISE EXCEPTION USING ERRCODE = '22023', COLUMN = 'published_from', MESSAGE = format('published_from must be before published_until and before now, is %s', o.published_from);
    END IF;
    o.filter := '{}';
    o.rate_per_second := redeliver_events.rate_per_second;
    o.cursor_at := greatest((o.published_from AT TIME ZONE 'UTC')::date, (SELECT min(to_date(right(c.relname, 8), 'YYYYMMDD')) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'postrider_internal.events'::regclass AND c.relname ~ '^events_[0-9]{8}$'))::timestamp AT TIME ZONE 'UTC';
    RETURN postrider_internal.start_operation(o, actor, address);
END $$;

-- A step that is under way is waited for: what it does is done, and nothing follows.
CREATE FUNCTION postrider_internal.cancel_operation(operation_id uuid, actor text, address text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    o postrider_internal.operations;
BEGIN
    PERFORM postrider_internal.commit_soon();
    SELECT * INTO o FROM postrider_internal.operations WHERE id = operation_id FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'P0002', MESSAGE = format('operation %s does not exist', operation_id), HINT = 'SELECT operation_id FROM postrider.operations lists those there are.';
    ELSIF o.state <> 'running' THEN
        RETURN false;
    END IF;
    UPDATE postrider_internal.operations SET state = 'canceled', finished_at = clock_timestamp() WHERE id = operation_id;
    PERFORM postrider_internal.note_audit(actor, address, 'operation_canceled', o.topic, o.subscription,
        jsonb_build_object('operationId', o.id, 'kind', o.kind, 'done', o.done, 'skipped', o.skipped, 'failed', o.failed));
    RETURN true;
END $$;

-- Takes a job as the token of one step. Nothing is answered where the job is nobody's, or the operation is over: then only the job goes.
CREATE FUNCTION postrider_internal.begin_step(job bigint) RETURNS SETOF postrider_internal.operations LANGUAGE plpgsql AS $$
DECLARE
    operation uuid;
BEGIN
    DELETE FROM postrider_internal.river_job j WHERE j.id = job AND j.kind = 'operation' RETURNING (j.args ->> 'o')::uuid INTO operation;
    RETURN QUERY SELECT o.* FROM postrider_internal.operations o WHERE o.id = operation AND o.job_id = job AND o.state = 'running' FOR UPDATE;
END $$;

-- Ends a step: writes down what it came to and gives the next one its job, in its time; or the operation ends, as done or, where failure says why,
-- as failed. What matched at the start and was met nowhere was purged or redelivered by somebody else.
CREATE FUNCTION postrider_internal.end_step(operation uuid, done bigint, skipped bigint, failed bigint, error text, reached_at timestamptz, reached_id uuid, last boolean, failure text, pause interval)
    RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    o postrider_internal.operations;
    over boolean := end_step.last OR end_step.failure IS NOT NULL;
BEGIN
    UPDATE postrider_internal.operations p
       SET done = p.done + end_step.done, failed = p.failed + end_step.failed, last_error = coalesce(end_step.failure, end_step.error, p.last_error),
           skipped = CASE WHEN end_step.last THEN greatest(p.skipped + end_step.skipped, p.matched - p.done - end_step.done - p.failed - end_step.failed) ELSE p.skipped + end_step.skipped END,
           cursor_at = coalesce(end_step.reached_at, p.cursor_at), cursor_id = coalesce(end_step.reached_id, p.cursor_id),
           state = CASE WHEN end_step.failure IS NOT NULL THEN 'failed' WHEN over THEN 'done' ELSE 'running' END,
           finished_at = CASE WHEN over THEN clock_timestamp() END, job_id = CASE WHEN NOT over THEN nextval('postrider_internal.river_job_id_seq') END
     WHERE p.id = operation RETURNING p.* INTO o;
    IF over THEN
        PERFORM postrider_internal.note_audit('postrider', '', 'operation_finished', o.topic, o.subscription,
            jsonb_build_object('operationId', o.id, 'kind', o.kind, 'state', o.state, 'done', o.done, 'skipped', o.skipped, 'failed', o.failed));
    ELSE
        INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at)
        VALUES (o.job_id, 'available', jsonb_build_object('o', o.id), 'operation', 'operations', 1, 1000, clock_timestamp() + pause);
    END IF;
END $$;

-- What one step of an operation on dead letters does to the next of them, up to so many and so many bytes of bodies.
CREATE FUNCTION postrider_internal.step_letters(operation uuid, most integer, bytes bigint, OUT taken integer, OUT done bigint, OUT skipped bigint, OUT failed bigint, OUT error text,
    OUT reached_at timestamptz, OUT reached_id uuid) LANGUAGE plpgsql AS $$
DECLARE
    o postrider_internal.operations;
    ids uuid[];
BEGIN
    SELECT p.* INTO o FROM postrider_internal.operations p WHERE p.id = operation;
    EXECUTE format('SELECT array_agg(id), max(at), (array_agg(id ORDER BY at DESC, id DESC))[1] FROM (
        SELECT p.id, p.at, sum(p.size) OVER (ORDER BY p.at, p.id) - p.size AS before FROM (
            SELECT l.id, l.dead_lettered_at AS at, octet_length(l.body) AS size FROM postrider_internal.dead_letters l
             WHERE (l.dead_lettered_at, l.id) > ($1, $2) AND l.dead_lettered_at <= $3 AND %s ORDER BY l.dead_lettered_at, l.id LIMIT $4) p) q WHERE before < $5',
        postrider_internal.dead_letter_condition(o.filter))
       INTO ids, reached_at, reached_id USING o.cursor_at, o.cursor_id, o.created_at, most, bytes;
    taken := coalesce(cardinality(ids), 0);
    IF taken = 0 THEN
        done := 0;
        failed := 0;
    ELSIF o.kind = 'purge' THEN
        PERFORM FROM postrider_internal.dead_letters l WHERE l.id = ANY (ids) ORDER BY l.id FOR UPDATE;
        DELETE FROM postrider_internal.dead_letters l WHERE l.id = ANY (ids);
        GET DIAGNOSTICS done = ROW_COUNT;
        failed := 0;
    ELSE
        SELECT count(*) FILTER (WHERE r.problem IS NULL), count(*) FILTER (WHERE r.problem <> 'redelivered'),
               max(CASE r.problem WHEN 'deleted' THEN format('the event subscription of dead letter %s was deleted: name another one', r.letter)
                                  WHEN 'expired' THEN format('the event subscription of dead letter %s has expired: name another one', r.letter)
                                  WHEN 'erased' THEN format('the event of dead letter %s was erased', r.letter)
                                  WHEN 'schema' THEN format('the event of dead letter %s cannot be delivered in the schema of its event subscription', r.letter) END)
          INTO done, failed, error
          FROM postrider_internal.redeliver_letters(ids, o.target_id, CASE WHEN (o.filter -> 'redelivered')::boolean THEN o.created_at END) r;
    END IF;
    skipped := taken - done - failed;
END $$;

CREATE FUNCTION postrider.redeliver_all(filter jsonb, subscription text DEFAULT NULL, topic text DEFAULT NULL, rate_per_second integer DEFAULT NULL) RETURNS uuid
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ SELECT postrider_internal.redeliver_all($1, $2, $3, $4, NULL, NULL) $$;

CREATE FUNCTION postrider.purge_all(filter jsonb, rate_per_second integer DEFAULT NULL) RETURNS uuid
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ SELECT postrider_internal.purge_all($1, $2, NULL, NULL) $$;

CREATE FUNCTION postrider.redeliver_events(topic text, subscription text, published_from timestamptz, published_until timestamptz DEFAULT NULL, rate_per_second integer DEFAULT NULL) RETURNS uuid
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ SELECT postrider_internal.redeliver_events($1, $2, $3, $4, $5, NULL, NULL) $$;

CREATE FUNCTION postrider.cancel_operation(operation_id uuid) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ SELECT postrider_internal.cancel_operation($1, NULL, NULL) $$;
-- +goose StatementEnd

REVOKE EXECUTE ON FUNCTION postrider.redeliver_all(jsonb, text, text, integer), postrider.purge_all(jsonb, integer), postrider.redeliver_events(text, text, timestamptz, timestamptz, integer), postrider.cancel_operation(uuid) FROM PUBLIC;

COMMENT ON FUNCTION postrider.redeliver_all(jsonb, text, text, integer) IS 'Redelivers all dead letters that match a filter, see count_dead_letters(), and exist now: each once, and by default only those that were not redelivered before ("redelivered": true redelivers those that were). Answers the operation''s id, see postrider.operations; the service does it in steps. subscription and topic: to this event subscription instead of each one''s own. rate_per_second: no more than so many in a second. Audited.';
COMMENT ON FUNCTION postrider.purge_all(jsonb, integer) IS 'Removes all dead letters that match a filter, see count_dead_letters(), and exist now. Answers the operation''s id, see postrider.operations; the service does it in steps. Audited.';
COMMENT ON FUNCTION postrider.redeliver_events(text, text, timestamptz, timestamptz, integer) IS 'Delivers a topic''s past events to one of its event subscriptions, those that its filter wants: published at published_from or later and before published_until (default now), as far as they are kept. Answers the operation''s id, see postrider.operations; the service does it in steps. Audited.';
COMMENT ON FUNCTION postrider.cancel_operation(uuid) IS 'Stops an operation between two steps: what is done stays done. false where it was over already. Audited.';

CREATE VIEW postrider.operations AS
SELECT o.id AS operation_id, o.kind, o.state, o.filter, o.topic, o.subscription, o.published_from, o.published_until, o.rate_per_second, o.matched::integer AS matched, o.done, o.skipped, o.failed, o.last_error,
       o.started_by, o.created_at, o.finished_at
  FROM postrider_internal.operations o;
COMMENT ON VIEW postrider.operations IS 'Redeliveries and purges of many, under way and over. Those that are over are kept for 30 days.';
COMMENT ON COLUMN postrider.operations.operation_id IS 'Id of the operation; a later one has a higher id.';
COMMENT ON COLUMN postrider.operations.kind IS 'redeliver (dead letters), purge (dead letters) or redeliver_events (past events).';
COMMENT ON COLUMN postrider.operations.state IS 'running; done; canceled (by somebody); failed: last_error says why it could not go on.';
COMMENT ON COLUMN postrider.operations.filter IS 'Which dead letters; {} = all of them. See postrider.count_dead_letters(). {"erased": true}: it named a subject that was erased.';
COMMENT ON COLUMN postrider.operations.topic IS 'Topic of the event subscription that everything goes to; NULL = each dead letter goes to its own.';
COMMENT ON COLUMN postrider.operations.subscription IS 'That event subscription.';
COMMENT ON COLUMN postrider.operations.published_from IS 'Of past events: from this time of publishing on.';
COMMENT ON COLUMN postrider.operations.published_until IS 'Of past events: before this time of publishing.';
COMMENT ON COLUMN postrider.operations.rate_per_second IS 'At most so many a second; NULL = as fast as it goes.';
COMMENT ON COLUMN postrider.operations.matched IS 'How many dead letters matched at the start; NULL of past events, which are looked at on the way.';
COMMENT ON COLUMN postrider.operations.done IS 'How many were redelivered or purged.';
COMMENT ON COLUMN postrider.operations.skipped IS 'How many dead letters were purged or redelivered by somebody else before their turn; of past events, how many the filter does not want.';
COMMENT ON COLUMN postrider.operations.failed IS 'How many could not be redelivered: their event subscription was deleted or has expired, does not take their schema, or they were erased.';
COMMENT ON COLUMN postrider.operations.last_error IS 'What last went wrong; NULL = nothing.';
COMMENT ON COLUMN postrider.operations.started_by IS 'Who started it, as postrider.audit tells actors.';
COMMENT ON COLUMN postrider.operations.created_at IS 'When it was started. Dead letters that were written later are none of it.';
COMMENT ON COLUMN postrider.operations.finished_at IS 'When it was over; NULL = it is running.';

-- +goose Down
DROP VIEW postrider.operations;
DROP FUNCTION postrider.cancel_operation(uuid);
DROP FUNCTION postrider.redeliver_events(text, text, timestamptz, timestamptz, integer);
DROP FUNCTION postrider.purge_all(jsonb, integer);
DROP FUNCTION postrider.redeliver_all(jsonb, text, text, integer);
DROP FUNCTION postrider_internal.step_letters(uuid, integer, bigint);
DROP FUNCTION postrider_internal.end_step(uuid, bigint, bigint, bigint, text, timestamptz, uuid, boolean, text, interval);
DROP FUNCTION postrider_internal.begin_step(bigint);
DROP FUNCTION postrider_internal.cancel_operation(uuid, text, text);
DROP FUNCTION postrider_internal.redeliver_events(text, text, timestamptz, timestamptz, integer, text, text);
DROP FUNCTION postrider_internal.purge_all(jsonb, integer, text, text);
DROP FUNCTION postrider_internal.redeliver_all(jsonb, text, text, integer, text, text);
DROP FUNCTION postrider_internal.start_operation(postrider_internal.operations, text, text);
DROP TABLE postrider_internal.operations;
