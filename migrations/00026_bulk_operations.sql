-- +goose Up
-- Functions that start operations on many rows, and their steps.

-- +goose StatementBegin
-- Starts an operation: its row and the job of its first step. The audit outlives an erasure, so instead of the subject
-- it has true, and the conditions of match have no values.
CREATE FUNCTION postrider_internal.start_operation(o postrider_internal.operations, actor text, address text)
RETURNS uuid LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF o.rate_per_second < 1 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', COLUMN = 'rate_per_second',
            MESSAGE = format('rate_per_second must be 1 or more, is %s', o.rate_per_second),
            HINT = 'NULL is as fast as it goes.';
    ELSIF o.expected_count < 0 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', COLUMN = 'expected_count',
            MESSAGE = format('expected_count must be 0 or more, is %s', o.expected_count),
            HINT = 'NULL accepts any number.';
    END IF;
    o.id := postrider_internal.new_uuid();
    o.counting := o.kind NOT IN ('redeliver_events', 'erase_subject');
    INSERT INTO postrider_internal.operations (id, kind, filter, topic, subscription, target_id, published_from,
        published_until, again, note, patch, paths, include_unchanged, rate_per_second, expected_count, counting,
        matched, started_by, job_id, cursor_at)
    VALUES (o.id, o.kind, o.filter, o.topic, o.subscription, o.target_id, o.published_from, o.published_until,
        coalesce(o.again, false), o.note, o.patch, o.paths, coalesce(o.include_unchanged, false),
        o.rate_per_second, o.expected_count, o.counting, CASE WHEN o.counting THEN 0 END, coalesce(actor, session_user),
        nextval('postrider_internal.river_job_id_seq'), coalesce(o.cursor_at, '-infinity')) RETURNING * INTO o;
    INSERT INTO postrider_internal.new_jobs
    SELECT * FROM postrider_internal.new_job(o.job_id, 'operation', jsonb_build_object('o', o.id), now());
    PERFORM pg_notify('postrider_internal.river_insert', '{"queue":"operations"}');
    PERFORM postrider_internal.note_audit(actor, address, 'operation_started', o.topic, o.subscription,
        jsonb_build_object('operationId', o.id, 'kind', o.kind, 'expectedCount', o.expected_count, 'ratePerSecond',
            o.rate_per_second, 'again', CASE WHEN o.again THEN true END, 'note', o.note, 'paths', o.paths,
            'filter', (SELECT coalesce(jsonb_object_agg(key, CASE WHEN key IN ('subject', 'subject_prefix') THEN 'true'
                WHEN key = 'match' THEN (SELECT jsonb_agg(c - 'value') FROM jsonb_array_elements(value) c)
                ELSE value END), '{}') FROM jsonb_each(o.filter))));
    RETURN o.id;
END $$;

-- Starts an operation on dead letters. Unless the filter names a state, it takes only open ones; a purge takes all, and
-- with again, a redelivery or repair takes those redelivered before too. note is of a resolution; patch, its paths and
-- include_unchanged of a repair.
CREATE FUNCTION postrider_internal.operate_on_dead_letters(kind text, filter jsonb, subscription text, topic text,
    again boolean, rate_per_second integer, expected_count bigint, note text, patch text, paths text[],
    include_unchanged boolean, actor text, address text) RETURNS uuid LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    o postrider_internal.operations;
BEGIN
    PERFORM postrider_internal.dead_letter_condition(filter);
    PERFORM postrider_internal.check_note(note);
    o.kind := operate_on_dead_letters.kind;
    o.again := again OR filter ->> 'state' IN ('redelivered', 'resolved');
    o.filter := CASE WHEN kind = 'purge' OR o.again THEN '{}' ELSE '{"state": "open"}' END::jsonb || filter;
    IF subscription IS NOT NULL THEN
        o.topic := coalesce(topic, filter ->> 'topic');
        IF o.topic IS NULL THEN
            RAISE EXCEPTION USING ERRCODE = '22023', COLUMN = 'topic',
                MESSAGE = 'topic is required with subscription, unless filter has one';
        END IF;
        o.subscription := subscription;
        o.target_id := postrider_internal.redelivery_target(o.topic, subscription);
    ELSIF topic IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023', COLUMN = 'subscription',
            MESSAGE = 'subscription is required with topic';
    END IF;
    o.rate_per_second := operate_on_dead_letters.rate_per_second;
    o.expected_count := operate_on_dead_letters.expected_count;
    o.note := nullif(operate_on_dead_letters.note, '');
    o.patch := operate_on_dead_letters.patch;
    o.paths := to_jsonb(operate_on_dead_letters.paths);
    o.include_unchanged := operate_on_dead_letters.include_unchanged;
    RETURN postrider_internal.start_operation(o, actor, address);
END $$;

-- Which past events a redelivery would scan, and its target; cursor_at is the first existing day.
CREATE FUNCTION postrider_internal.past_events(topic text, subscription text, published_from timestamptz,
    published_until timestamptz) RETURNS postrider_internal.operations LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    o postrider_internal.operations;
    missing text := CASE WHEN topic IS NULL THEN 'topic' WHEN subscription IS NULL THEN 'subscription'
        WHEN published_from IS NULL THEN 'published_from' END;
BEGIN
    IF missing IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023', COLUMN = missing, MESSAGE = missing || ' is required';
    END IF;
    o.kind := 'redeliver_events';
    o.target_id := postrider_internal.redelivery_target(topic, subscription);
    o.topic := past_events.topic;
    o.subscription := past_events.subscription;
    o.published_from := past_events.published_from;
    o.published_until := least(past_events.published_until, now());
    IF NOT isfinite(o.published_from) OR o.published_from >= o.published_until THEN
        RAISE EXCEPTION USING ERRCODE = '22023', COLUMN = 'published_from',
            MESSAGE = format('published_from must be before published_until and before now, is %s', o.published_from);
    END IF;
    o.filter := '{}';
    o.cursor_at := greatest((o.published_from AT TIME ZONE 'UTC')::date,
        postrider_internal.first_day_of_events())::timestamp AT TIME ZONE 'UTC';
    RETURN o;
END $$;

CREATE FUNCTION postrider_internal.first_day_of_events() RETURNS date LANGUAGE sql STABLE BEGIN ATOMIC
SELECT min(to_date(right(c.relname, 8), 'YYYYMMDD')) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
 WHERE i.inhparent = 'postrider_internal.events'::regclass AND c.relname ~ '^events_[0-9]{8}$';
END;

CREATE FUNCTION postrider_internal.redeliver_events(topic text, subscription text, published_from timestamptz,
    published_until timestamptz, rate_per_second integer, actor text, address text)
    RETURNS uuid LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    o postrider_internal.operations := postrider_internal.past_events(topic, subscription, published_from,
        published_until);
BEGIN
    o.rate_per_second := redeliver_events.rate_per_second;
    RETURN postrider_internal.start_operation(o, actor, address);
END $$;

-- Counts the past events of a topic as redeliver_events() scans them, 20,000 of a day at a time, until the timeout. The
-- service evaluates an event subscription's filter.
CREATE FUNCTION postrider_internal.count_events(topic text, published_from timestamptz, published_until timestamptz,
    timeout interval) RETURNS bigint LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wanted bigint;
    began timestamptz := clock_timestamp();
    until timestamptz := least(published_until, now());
    today date := greatest((published_from AT TIME ZONE 'UTC')::date, postrider_internal.first_day_of_events());
    after_id uuid := '00000000-0000-0000-0000-000000000000';
    edge uuid;
    n bigint;
    counted bigint := 0;
BEGIN
    SELECT t.id INTO wanted FROM postrider_internal.topics t WHERE t.name = topic AND t.deleted_at IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'P0002', MESSAGE = format('topic "%s" does not exist', topic), COLUMN = 'topic',
            HINT = 'SELECT topic FROM postrider.topics lists those there are.';
    ELSIF published_from IS NULL OR NOT isfinite(published_from) THEN
        RAISE EXCEPTION USING ERRCODE = '22023', COLUMN = 'published_from',
            MESSAGE = 'published_from is required, and must be a time';
    END IF;
    WHILE today <= (until AT TIME ZONE 'UTC')::date LOOP
        SELECT e.id INTO edge FROM postrider_internal.events e WHERE e.day = today AND e.id > after_id
        ORDER BY e.id OFFSET 19999 LIMIT 1;
        SELECT count(*) INTO n FROM postrider_internal.events e
         WHERE e.day = today AND e.id > after_id AND (edge IS NULL OR e.id <= edge) AND e.topic_id = wanted
           AND e.published_at >= published_from AND e.published_at < until
           AND (e.published_at AT TIME ZONE 'UTC')::date = today AND e.erased_at IS NULL;
        counted := counted + n;
        today := CASE WHEN edge IS NULL THEN today + 1 ELSE today END;
        after_id := coalesce(edge, '00000000-0000-0000-0000-000000000000');
        PERFORM postrider_internal.count_to_the_end('such events', counted, clock_timestamp() - began > timeout,
            timeout);
    END LOOP;
    RETURN counted;
END $$;

-- Waits for a step in progress: its work is done, and no further step follows.
CREATE FUNCTION postrider_internal.cancel_operation(operation_id uuid, actor text, address text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    o postrider_internal.operations;
BEGIN
    PERFORM postrider_internal.commit_soon();
    SELECT * INTO o FROM postrider_internal.operations WHERE id = operation_id FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'P0002', MESSAGE = format('operation %s does not exist', operation_id),
            HINT = 'SELECT operation_id FROM postrider.operations lists those there are.';
    ELSIF o.state <> 'running' THEN
        RETURN false;
    END IF;
    UPDATE postrider_internal.operations SET state = 'canceled', finished_at = clock_timestamp(), patch = NULL,
        filter = CASE kind
        WHEN 'erase_subject' THEN '{"erased": true}' ELSE filter END
     WHERE id = operation_id;
    PERFORM postrider_internal.note_audit(actor, address, 'operation_canceled', o.topic, o.subscription,
        jsonb_build_object('operationId', o.id, 'kind', o.kind, 'done', o.done, 'skipped', o.skipped, 'failed',
            o.failed));
    RETURN true;
END $$;

-- Takes a job as the token of one step. Returns nothing if the job belongs to no operation or the operation has ended:
-- then only the job is deleted.
CREATE FUNCTION postrider_internal.begin_step(job bigint) RETURNS SETOF postrider_internal.operations
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    operation uuid;
BEGIN
    DELETE FROM postrider_internal.river_job j WHERE j.id = job AND j.kind = 'operation'
    RETURNING (j.args ->> 'o')::uuid INTO operation;
    RETURN QUERY SELECT o.* FROM postrider_internal.operations o WHERE o.id = operation AND o.job_id = job
        AND o.state = 'running' FOR UPDATE;
END $$;

-- Ends a step: stores its result and creates the next step's job, at the earliest after a pause; or ends the operation,
-- as done or, with failure, as failed. Dead letters that matched at the start and were not found were purged or
-- redelivered by others. The subject of an ended erasure is removed. The last step of a count begins the operation, or
-- ends it if it counted another number than expected.
--
-- With a rate, what the step has taken takes its permits from the row operation:ID of delivery_rates, as requests do,
-- see operation_permits: the next step is due at the first free time. It returns how long the next step is away.
CREATE FUNCTION postrider_internal.end_step(operation uuid, done bigint, skipped bigint, failed bigint, error text,
    reached_at timestamptz, reached_id uuid, reached_delivery bigint, of_dead_letters boolean, last boolean,
    failure text, taken integer, pause interval)
    RETURNS interval LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    o postrider_internal.operations;
    over boolean;
    due timestamptz := clock_timestamp() + pause;
BEGIN
    SELECT p.* INTO o FROM postrider_internal.operations p WHERE p.id = operation;
    IF o.counting THEN
        UPDATE postrider_internal.operations p SET matched = p.matched + taken, counting = NOT end_step.last
         WHERE p.id = operation RETURNING p.* INTO o;
        taken := 0;
        IF last THEN
            reached_at := '-infinity';
            reached_id := '00000000-0000-0000-0000-000000000000';
            reached_delivery := 0;
            last := o.matched = 0;
            IF o.matched <> o.expected_count THEN
                failure := format('expected %s, found %s; nothing was changed', to_char(o.expected_count,
                    'FM999,999,999,999,990'), to_char(o.matched, 'FM999,999,999,999,990'));
            END IF;
        END IF;
    END IF;
    over := last OR failure IS NOT NULL;
    UPDATE postrider_internal.operations p
       SET steps = p.steps + 1, done = p.done + end_step.done, failed = p.failed + end_step.failed,
           last_error = coalesce(end_step.failure, end_step.error, p.last_error),
           skipped = CASE WHEN end_step.last THEN greatest(p.skipped + end_step.skipped,
               p.matched - p.done - end_step.done - p.failed - end_step.failed) ELSE p.skipped + end_step.skipped END,
           cursor_at = coalesce(end_step.reached_at, p.cursor_at), cursor_id = coalesce(end_step.reached_id,
               p.cursor_id), cursor_delivery = coalesce(end_step.reached_delivery, p.cursor_delivery),
           of_dead_letters = p.of_dead_letters OR end_step.of_dead_letters,
           filter = CASE WHEN over AND p.kind = 'erase_subject' THEN '{"erased": true}' ELSE p.filter END,
           patch = CASE WHEN NOT over THEN p.patch END,
           state = CASE WHEN end_step.failure IS NOT NULL THEN 'failed' WHEN over THEN 'done' ELSE 'running' END,
           finished_at = CASE WHEN over THEN clock_timestamp() END, job_id = CASE WHEN NOT over
               THEN nextval('postrider_internal.river_job_id_seq') END
     WHERE p.id = operation RETURNING p.* INTO o;
    IF over THEN
        PERFORM postrider_internal.note_audit('postrider', '', 'operation_finished', o.topic, o.subscription,
            jsonb_build_object('operationId', o.id, 'kind', o.kind, 'state', o.state, 'matched', o.matched, 'done',
                o.done, 'skipped', o.skipped, 'failed', o.failed));
        RETURN NULL;
    END IF;
    IF o.rate_per_second IS NOT NULL AND taken > 0 THEN
        INSERT INTO postrider_internal.delivery_rates AS r (key, next_at)
        SELECT 'operation:' || o.id, t.first + taken * t.step FROM postrider_internal.operation_permits(o.id) t
            ON CONFLICT (key) DO UPDATE SET next_at = excluded.next_at
        RETURNING greatest(due, r.next_at) INTO due;
    END IF;
    INSERT INTO postrider_internal.new_jobs
    SELECT * FROM postrider_internal.new_job(o.job_id, 'operation', jsonb_build_object('o', o.id), due);
    RETURN greatest(due - clock_timestamp(), pause);
END $$;

-- The next dead letters that a filter matches and that were dead-lettered until a time: of the next scan_limit ones
-- after a position, up to a number and a size of bodies. NULL bytes are no limit. reached_at and reached_id are where
-- to continue.
CREATE FUNCTION postrider_internal.next_dead_letters(filter jsonb, until timestamptz, after_at timestamptz,
    after_id uuid, most integer, bytes bigint, scan_limit integer, OUT ids uuid[], OUT reached_at timestamptz,
    OUT reached_id uuid, OUT last boolean) LANGUAGE plpgsql STABLE SET datestyle = 'ISO'
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found uuid[];
    edge record;
BEGIN
    SELECT e.at, e.id INTO edge FROM postrider_internal.dead_letter_edge(filter, after_at, after_id, true, until,
        CASE WHEN postrider_internal.search_method(filter) = 'scan' AND filter ? 'match' THEN 1000
        ELSE scan_limit END) e;
    found := postrider_internal.scan_step(format('dead_lettered_at <= %L AND ', until)
        || postrider_internal.dead_letter_condition(filter), after_at, after_id, edge.at, edge.id, true, most);
    ids := found;
    IF bytes IS NOT NULL THEN
        ids := ARRAY (SELECT f.id FROM (SELECT l.id, l.dead_lettered_at AS at, sum(octet_length(l.body)) OVER (
                   ORDER BY l.dead_lettered_at, l.id) - octet_length(l.body) AS before
              FROM postrider_internal.dead_letters l WHERE l.id = ANY (found)) f
             WHERE f.before < bytes ORDER BY f.at, f.id);
    END IF;
    last := edge.at IS NULL AND cardinality(found) < most AND cardinality(ids) = cardinality(found);
    IF edge.at IS NOT NULL AND cardinality(found) < most AND cardinality(ids) = cardinality(found) THEN
        reached_at := edge.at;
        reached_id := edge.id;
    ELSE
        SELECT l.dead_lettered_at, l.id INTO reached_at, reached_id FROM postrider_internal.dead_letters l
         WHERE l.id = ids[cardinality(ids)];
    END IF;
END $$;

-- One step of a count.
CREATE FUNCTION postrider_internal.count_step(operation uuid, scan_limit integer, OUT taken integer,
    OUT reached_at timestamptz, OUT reached_id uuid, OUT last boolean) LANGUAGE sql STABLE BEGIN ATOMIC
SELECT cardinality(n.ids), n.reached_at, n.reached_id, n.last
  FROM postrider_internal.operations o
 CROSS JOIN LATERAL postrider_internal.next_dead_letters(o.filter, o.created_at, o.cursor_at, o.cursor_id,
       scan_limit + 1, NULL, scan_limit) n
 WHERE o.id = operation;
END;

-- One step of a redelivery, a resolution or a purge of dead letters.
CREATE FUNCTION postrider_internal.step_dead_letters(operation uuid, most integer, bytes bigint, scan_limit integer,
    OUT taken integer, OUT done bigint, OUT skipped bigint, OUT failed bigint, OUT error text,
    OUT reached_at timestamptz, OUT reached_id uuid, OUT last boolean) LANGUAGE plpgsql SET datestyle = 'ISO'
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    o postrider_internal.operations;
    ids uuid[];
BEGIN
    SELECT p.* INTO o FROM postrider_internal.operations p WHERE p.id = operation;
    SELECT n.ids, n.reached_at, n.reached_id, n.last INTO ids, reached_at, reached_id, last
      FROM postrider_internal.next_dead_letters(o.filter, o.created_at, o.cursor_at, o.cursor_id, most, bytes,
          scan_limit) n;
    taken := cardinality(ids);
    IF o.kind = 'purge' THEN
        PERFORM FROM postrider_internal.dead_letters l WHERE l.id = ANY (ids) ORDER BY l.id FOR UPDATE;
        DELETE FROM postrider_internal.dead_letters l WHERE l.id = ANY (ids);
        GET DIAGNOSTICS done = ROW_COUNT;
        failed := 0;
    ELSIF o.kind = 'resolve' THEN
        done := postrider_internal.resolve_dead_letters(ids, o.filter ->> 'state', true, o.note, o.started_by);
        failed := 0;
    ELSE
        SELECT count(*) FILTER (WHERE r.problem IS NULL),
               count(*) FILTER (WHERE r.problem NOT IN ('redelivered', 'resolved')),
               max(format('dead letter %s: %s', r.letter, postrider_internal.result_message(r.problem)))
                   FILTER (WHERE r.problem NOT IN ('redelivered', 'resolved'))
          INTO done, failed, error
          FROM postrider_internal.redeliver_dead_letters(ids, NULL, NULL, o.target_id,
              CASE WHEN o.again THEN o.created_at END, o.id) r;
    END IF;
    skipped := taken - done - failed;
END $$;

-- Why nothing was done with a dead letter or a delivery, in words.
CREATE FUNCTION postrider_internal.result_message(result text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE result WHEN 'redelivered' THEN 'it was redelivered before'
                   WHEN 'resolved' THEN 'it was resolved'
                   WHEN 'erased' THEN 'its event was erased'
                   WHEN 'deleted' THEN 'its event subscription was deleted: name another one'
                   WHEN 'expired' THEN 'its event subscription has expired: name another one'
                   WHEN 'schema' THEN 'its event cannot be delivered in the schema of the event subscription'
                   WHEN 'ended' THEN 'the delivery had ended'
                   WHEN 'running' THEN 'an attempt is in progress'
                   WHEN 'paused' THEN 'its event subscription is paused'
                   WHEN 'probation' THEN 'its event subscription is in probation'
                   WHEN 'not_validated' THEN 'its event subscription waits for its endpoint''s validation'
                   WHEN 'unchanged' THEN 'the patch does not change it'
                   WHEN 'invalid' THEN 'the edited event is invalid'
                   WHEN 'topic_deleted' THEN 'its topic was deleted'
                   WHEN 'system_topic' THEN 'its event belongs to postrider'
                   ELSE result END;

CREATE FUNCTION postrider.redeliver_all(filter jsonb, subscription text DEFAULT NULL, topic text DEFAULT NULL,
    rate_per_second integer DEFAULT NULL, again boolean DEFAULT false, expected_count bigint DEFAULT NULL) RETURNS uuid
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN postrider_internal.operate_on_dead_letters('redeliver', $1, $2, $3, $5, $4, $6, NULL, NULL, NULL, NULL, NULL,
        NULL);

CREATE FUNCTION postrider.purge_all(filter jsonb, rate_per_second integer DEFAULT NULL,
    expected_count bigint DEFAULT NULL) RETURNS uuid
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN postrider_internal.operate_on_dead_letters('purge', $1, NULL, NULL, NULL, $2, $3, NULL, NULL, NULL, NULL, NULL,
        NULL);

CREATE FUNCTION postrider.resolve_all(filter jsonb, note text DEFAULT NULL, expected_count bigint DEFAULT NULL)
    RETURNS uuid LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN postrider_internal.operate_on_dead_letters('resolve', $1, NULL, NULL, NULL, NULL, $3, $2, NULL, NULL, NULL, NULL,
        NULL);

CREATE FUNCTION postrider.redeliver_events(topic text, subscription text, published_from timestamptz,
    published_until timestamptz DEFAULT NULL, rate_per_second integer DEFAULT NULL) RETURNS uuid
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN postrider_internal.redeliver_events($1, $2, $3, $4, $5, NULL, NULL);

CREATE FUNCTION postrider.count_events(topic text, published_from timestamptz, published_until timestamptz DEFAULT NULL)
RETURNS bigint
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN postrider_internal.count_events($1, $2, $3, '30 seconds');

CREATE FUNCTION postrider.erase_subject(topic text, subject text, OUT erased bigint, OUT operation_id uuid)
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp BEGIN ATOMIC
SELECT *
    FROM postrider_internal.erase_subject($1, $2, NULL, NULL);
END;

CREATE FUNCTION postrider.cancel_operation(operation_id uuid) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN postrider_internal.cancel_operation($1, NULL, NULL);
-- +goose StatementEnd

REVOKE EXECUTE ON FUNCTION postrider.redeliver_all(jsonb, text, text, integer, boolean, bigint),
    postrider.purge_all(jsonb, integer, bigint), postrider.resolve_all(jsonb, text, bigint),
    postrider.redeliver_events(text, text, timestamptz, timestamptz, integer), postrider.cancel_operation(uuid),
    postrider.count_events(text, timestamptz, timestamptz), postrider.erase_subject(text, text) FROM PUBLIC;
COMMENT ON FUNCTION postrider.redeliver_all(jsonb, text, text, integer, boolean, bigint) IS
    'Redelivers all dead letters that match a filter, see postrider.count_dead_letters(), and exist now, each once. '
    'Without the member state, it redelivers only open ones; with again also those redelivered before, but never '
    'resolved ones. Returns the id of the operation, '
    'see postrider.operations; the service counts them, then redelivers them in steps. If '
    'expected_count is another number, the operation fails and changes nothing. subscription and topic: the event '
    'subscription that receives all of them, instead of each one''s own. rate_per_second: the most in one second.';
COMMENT ON FUNCTION postrider.resolve_all(jsonb, text, bigint) IS
    'Resolves all dead letters that match a filter, see postrider.count_dead_letters(), and exist now, as '
    'postrider.resolve() does; without the member state, only open ones. Returns the id of the operation, see '
    'postrider.operations; the service counts them, then resolves them in steps. If expected_count is another number, '
    'the operation fails and changes nothing.';
COMMENT ON FUNCTION postrider.purge_all(jsonb, integer, bigint) IS
    'Removes all dead letters that match a filter, see postrider.count_dead_letters(), and exist now. Returns the id '
    'of the operation, see postrider.operations; the service counts them, then removes them in steps. If '
    'expected_count is another number, the operation fails and changes nothing. rate_per_second: the most in one '
    'second.';
COMMENT ON FUNCTION postrider.redeliver_events(text, text, timestamptz, timestamptz, integer) IS
    'Delivers past events of a topic to one of its event subscriptions: those that its filter matches, published from '
    'published_from on and before published_until (default now), if they are still kept. Repairs are left out: they '
    'were not published. Returns the id of the '
    'operation, see postrider.operations; the service runs it in steps. rate_per_second: the most in one second.';
COMMENT ON FUNCTION postrider.count_events(text, timestamptz, timestamptz) IS
    'Returns how many past events of a topic redeliver_events() would check: published from published_from on and '
    'before published_until (default now), and still kept. It is an upper limit: only the service can apply the event '
    'subscription''s filter (REST: dryRun, CLI: --dry-run). If counting takes more than 30 s, an error has the count '
    'so far.';
COMMENT ON FUNCTION postrider.erase_subject(text, text) IS
    'Erases all events of a topic with exactly this subject, as postrider.erase_event() does, also repairs of such '
    'events with another subject. It reads every event of '
    'the topic that is kept. Up to 1,000 events that are found within a second are erased in your transaction, and '
    'erased is their number. Otherwise an operation starts, see postrider.operations; operation_id is its id, and the '
    'service erases 200 events at a time. Events that are published with the subject meanwhile may stay. The audit '
    'log has the number, not the subject, and the subject is removed from the filters of operations. Fails while an '
    'operation with this subject is running.';
COMMENT ON FUNCTION postrider.cancel_operation(uuid) IS
    'Stops an operation after its current step. Completed steps are not undone. Returns false if the operation had '
    'ended.';

-- +goose Down
DROP FUNCTION postrider.cancel_operation, postrider.erase_subject, postrider.count_events,
    postrider.redeliver_events, postrider.resolve_all, postrider.purge_all, postrider.redeliver_all,
    postrider_internal.result_message,
    postrider_internal.step_dead_letters, postrider_internal.count_step, postrider_internal.next_dead_letters,
    postrider_internal.end_step, postrider_internal.begin_step,
    postrider_internal.cancel_operation, postrider_internal.count_events, postrider_internal.redeliver_events,
    postrider_internal.first_day_of_events, postrider_internal.past_events,
    postrider_internal.operate_on_dead_letters, postrider_internal.start_operation;
