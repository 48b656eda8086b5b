-- +goose Up
-- The erasure of events, and of all events with a subject.

-- +goose StatementBegin
-- Rejects erasing what a node may be exporting now: it has read the bodies. The dead letters are locked against being
-- claimed by an export, and the jobs of their exports against being started. A locked job is being started or ended: it
-- is not waited for.
CREATE FUNCTION postrider_internal.reject_exporting(events uuid[]) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l record;
BEGIN
    PERFORM FROM postrider_internal.dead_letters d WHERE d.event_uuid = ANY (events) ORDER BY d.id FOR UPDATE;
    FOR l IN SELECT d.id, x.job_id FROM postrider_internal.dead_letters d JOIN postrider_internal.exports x
        ON x.id = d.export_id WHERE d.event_uuid = ANY (events) ORDER BY x.job_id LOOP
        PERFORM FROM postrider_internal.river_job j WHERE j.id = l.job_id AND j.state <> 'running'
        FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = 'exporting',
                MESSAGE = format('dead letter %s is being exported; try again in a minute', l.id),
                HINT = 'SELECT export_state, export_location FROM postrider.dead_letters shows its end. The '
                    'exported file cannot be erased.';
        END IF;
    END LOOP;
END $$;

-- Erases these events of these days and all their repairs everywhere; their pending deliveries are canceled first.
-- Returns how many were not erased before.
--
-- The events' rows come first: a delivery that is created from then on is of an erased event, and its due check drops
-- it. An attempt that is being recorded may turn a pending delivery into a dead letter, and a redelivery the reverse:
-- so both are searched until neither is found. Jobs and events are locked in the same order as recording and
-- redelivering lock them.
CREATE FUNCTION postrider_internal.erase_events(ids uuid[], first_day date, actor text, address text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    erased uuid[] := '{}';
    stored uuid[];
    dead_letters uuid[];
    pending bigint[];
    delivery bigint;
    redelivered bigint[];
    problem text;
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = 'isolation',
            MESSAGE = format('an erasure under %s would not see what it waits for',
            upper(current_setting('transaction_isolation') COLLATE "C")),
            HINT = 'Erase in a transaction of READ COMMITTED.';
    END IF;
    PERFORM postrider_internal.commit_soon();
    LOOP
        -- A redelivery may have stored the event again, on a later day, or a repair of it, and may do so now: the row
        -- that it comes from, an event's or a dead letter's, is then waited for and erased, and the search repeats.
        ids := postrider_internal.with_repairs(ids);
        PERFORM FROM postrider_internal.events e WHERE e.id = ANY (ids) AND e.day >= first_day AND e.erased_at IS NULL
        ORDER BY e.day, e.id FOR UPDATE;
        WITH gone AS (
            UPDATE postrider_internal.events e SET body = '', subject = '', erased_at = now() WHERE e.id = ANY (ids)
                AND e.day >= first_day AND e.erased_at IS NULL RETURNING e.id
        )
        SELECT array_agg(id) INTO stored FROM gone;
        SELECT array_agg(d.id ORDER BY coalesce(d.job_id, b.job_id), d.id) INTO pending
          FROM postrider_internal.deliveries d LEFT JOIN postrider_internal.batches b ON b.id = d.batch_id
          WHERE d.event_uuid = ANY (ids);
        FOREACH delivery IN ARRAY coalesce(pending, '{}') LOOP
            BEGIN
                PERFORM postrider_internal.end_by_hand(delivery, 'canceled', 'EventErased', NULL, actor, address);
            EXCEPTION WHEN object_not_in_prerequisite_state THEN
                GET STACKED DIAGNOSTICS problem = CONSTRAINT_NAME;
                IF problem <> 'ended' THEN -- otherwise it has ended meanwhile
                    RAISE;
                END IF;
            END;
        END LOOP;
        PERFORM postrider_internal.reject_exporting(ids);
        WITH gone AS (
            UPDATE postrider_internal.dead_letters l
               SET body = '', subject = '', last_error = NULL, last_response = NULL, erased_at = now(),
                   export_id = NULL, export_state = nullif(l.export_state, 'pending'),
                   export_due_at = CASE WHEN l.export_state <> 'pending' THEN l.export_due_at END,
                   export_abandon_at = CASE WHEN l.export_state <> 'pending' THEN l.export_abandon_at END,
                   export_attempts = CASE WHEN l.export_state <> 'pending' THEN l.export_attempts END,
                   export_error = CASE WHEN l.export_state <> 'pending' THEN l.export_error END
             WHERE l.event_uuid = ANY (ids) AND l.erased_at IS NULL RETURNING l.event_uuid
        )
        SELECT coalesce(array_agg(event_uuid), '{}') INTO dead_letters FROM gone;
        EXIT WHEN stored IS NULL AND pending IS NULL AND dead_letters = '{}'
            AND cardinality(postrider_internal.with_repairs(ids)) = cardinality(ids);
        erased := erased || stored || dead_letters;
    END LOOP;
    UPDATE postrider_internal.repairs r SET edit = NULL, old_subject = NULL WHERE r.system_id = ANY (ids);
    -- Dead letters and attempts may be kept longer than deliveries.
    SELECT array_agg(id) INTO redelivered FROM (SELECT h.id FROM postrider_internal.delivery_history h
        WHERE h.event_uuid = ANY (ids)
                                          UNION SELECT l.delivery_id FROM postrider_internal.dead_letters l
                                          WHERE l.event_uuid = ANY (ids)) d(id);
    -- Nothing observes problems now: what it has read of the attempts would be stored after the erasure.
    PERFORM FROM postrider_internal.problem_pass FOR SHARE;
    UPDATE postrider_internal.problems p SET last_error = NULL
     WHERE p.delivery_id = ANY (redelivered) OR p.batch_id = ANY (ARRAY (SELECT m.batch_id
         FROM postrider_internal.batch_members m WHERE m.delivery_id = ANY (redelivered)));
    UPDATE postrider_internal.delivery_attempts a SET error = NULL, request_headers = NULL, response_headers = NULL,
        response_excerpt = NULL
     WHERE a.delivery_id = ANY (redelivered) OR a.batch_id = ANY (ARRAY (SELECT m.batch_id
         FROM postrider_internal.batch_members m WHERE m.delivery_id = ANY (redelivered)));
    RETURN (SELECT count(DISTINCT e) FROM unnest(erased) e);
END $$;

CREATE FUNCTION postrider_internal.erase_event(system_id uuid, day date, actor text, address text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    topic text;
    erased bigint;
BEGIN
    SELECT t.name INTO topic FROM postrider_internal.events e JOIN postrider_internal.topics t ON t.id = e.topic_id
     WHERE e.id = system_id AND e.day BETWEEN coalesce(erase_event.day, '-infinity') AND coalesce(erase_event.day,
         'infinity') LIMIT 1; -- a redelivery stores it again under its own day
    IF NOT FOUND THEN
        SELECT l.topic INTO topic FROM postrider_internal.dead_letters l WHERE l.event_uuid = system_id LIMIT 1;
    END IF;
    IF NOT FOUND THEN -- its repairs may still be stored
        SELECT t.name INTO topic FROM postrider_internal.repairs r JOIN postrider_internal.topics t ON t.id = r.topic_id
         WHERE r.edited_from = erase_event.system_id LIMIT 1;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'P0002', MESSAGE = format('event %s does not exist', coalesce(system_id::text,
            'NULL')), COLUMN = 'system_id',
            HINT = 'SELECT system_id FROM postrider.events lists those there are; it is not the publisher''s event_id.';
    END IF;
    erased := postrider_internal.erase_events(ARRAY [system_id], coalesce(erase_event.day, '-infinity'), actor,
        address);
    PERFORM postrider_internal.note_audit(actor, address, 'event_erased', topic, NULL, jsonb_build_object('systemId',
        system_id, 'events', erased));
    RETURN erased;
END $$;

-- Removes a subject from the filters of other operations: alone, as a prefix or as a value of match. It stays in the
-- erasure itself, and in others that erase it: two that began at the same moment would wait for each other. Each
-- removes its own.
CREATE FUNCTION postrider_internal.forget_filters(topic text, subject text, eraser uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    o record;
BEGIN
    FOR o IN SELECT p.id, p.state FROM postrider_internal.operations p
              WHERE (subject IN (p.filter ->> 'subject', p.filter ->> 'subject_prefix')
                    OR p.filter -> 'match' @> jsonb_build_array(jsonb_build_object('value', subject)))
                AND coalesce(p.filter ->> 'topic', forget_filters.topic) = forget_filters.topic
                AND (eraser IS NULL OR p.kind <> 'erase_subject') ORDER BY p.id FOR UPDATE LOOP
        IF o.state = 'running' THEN
            RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = 'operation',
                MESSAGE = format('operation %s of this subject is running: cancel it, or wait until it has ended',
                    o.id),
                HINT = format('SELECT postrider.cancel_operation(%L) cancels it.', o.id);
        END IF;
        UPDATE postrider_internal.operations p SET filter = p.filter - '{subject,subject_prefix,match}'::text[]
            || '{"erased": true}'::jsonb WHERE p.id = o.id;
    END LOOP;
END $$;

-- The next events with a subject, and the position to continue from: of the next scan_limit events of one day, or of as
-- many dead letters, which may outlive their events; up to a number.
CREATE FUNCTION postrider_internal.next_of_subject(topic text, subject text, most integer, scan_limit integer,
    INOUT of_dead_letters boolean, INOUT at timestamptz, INOUT id uuid, OUT ids uuid[], OUT last boolean)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    today date := (at AT TIME ZONE 'UTC')::date;
    zero uuid := '00000000-0000-0000-0000-000000000000';
    read integer;
    edge record;
    edge_id uuid;
    edge_at timestamptz;
BEGIN
    last := false;
    IF NOT of_dead_letters THEN
        WITH searched AS MATERIALIZED (
            SELECT e.id, e.subject = next_of_subject.subject AND e.topic_id IN (SELECT t.id
                FROM postrider_internal.topics t WHERE t.name = next_of_subject.topic) AS matches
              FROM postrider_internal.events e WHERE e.day = today AND e.id > next_of_subject.id ORDER BY e.id
              LIMIT scan_limit
        )
        SELECT ARRAY (SELECT l.id FROM searched l WHERE l.matches ORDER BY l.id LIMIT most),
               (SELECT l.id FROM searched l ORDER BY l.id DESC LIMIT 1), (SELECT count(*) FROM searched)
          INTO ids, edge_id, read;
        IF cardinality(ids) = most THEN
            id := ids[most];
        ELSIF read = scan_limit THEN
            id := edge_id;
        ELSE
            of_dead_letters := today >= (clock_timestamp() AT TIME ZONE 'UTC')::date;
            at := CASE WHEN of_dead_letters THEN '-infinity' ELSE (today + 1)::timestamp AT TIME ZONE 'UTC' END;
            id := zero;
        END IF;
        RETURN;
    END IF;
    SELECT e.at, e.id INTO edge FROM postrider_internal.dead_letter_edge('{}', at, id, true, 'infinity',
        scan_limit) e;
    WITH found AS MATERIALIZED (
        SELECT l.event_uuid, l.dead_lettered_at, l.id FROM postrider_internal.dead_letters l
         WHERE (l.dead_lettered_at, l.id) > (next_of_subject.at, next_of_subject.id)
           AND (l.dead_lettered_at, l.id) <= (coalesce(edge.at, 'infinity'),
               coalesce(edge.id, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
           AND l.dead_lettered_at BETWEEN next_of_subject.at AND coalesce(edge.at, 'infinity')
           AND l.subject = next_of_subject.subject AND l.topic = next_of_subject.topic ORDER BY l.dead_lettered_at, l.id
           LIMIT most
    )
    SELECT ARRAY (SELECT DISTINCT f.event_uuid FROM found f), count(*),
           (array_agg(f.id ORDER BY f.dead_lettered_at DESC, f.id DESC))[1], max(f.dead_lettered_at) INTO ids, read,
           edge_id, edge_at FROM found f;
    last := read < most AND edge.at IS NULL;
    at := CASE WHEN read < most THEN coalesce(edge.at, at) ELSE edge_at END;
    id := CASE WHEN read < most THEN coalesce(edge.id, id) ELSE edge_id END;
END $$;

-- Erases all events of a topic with a subject: at once if they are few and found within a second, else as an operation.
-- Its filter keeps the subject until it ends.
CREATE FUNCTION postrider_internal.erase_subject(topic text, subject text, actor text, address text, OUT erased bigint,
    OUT operation_id uuid) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    began timestamptz := clock_timestamp();
    few integer := 1000;
    o postrider_internal.operations;
    next record;
    ids uuid[] := postrider_internal.repairs_of_subject(topic, subject, few + 1);
BEGIN
    IF coalesce(subject, '') = '' THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'subject is required', COLUMN = 'subject',
            HINT = 'Events without a subject are erased one by one: postrider.erase_event().';
    ELSIF NOT EXISTS (SELECT FROM postrider_internal.topics t WHERE t.name = topic)
        AND NOT EXISTS (SELECT FROM postrider_internal.dead_letters l WHERE l.topic = erase_subject.topic) THEN
        RAISE EXCEPTION USING ERRCODE = 'P0002', MESSAGE = format('topic "%s" does not exist', topic), COLUMN = 'topic',
            HINT = 'SELECT topic FROM postrider.topics lists those there are.';
    END IF;
    PERFORM postrider_internal.forget_filters(topic, subject, NULL);
    o.cursor_at := postrider_internal.first_day_of_events()::timestamp AT TIME ZONE 'UTC';
    SELECT false AS of_dead_letters, coalesce(o.cursor_at, now()) AS at,
           '00000000-0000-0000-0000-000000000000'::uuid AS id INTO next;
    LOOP
        SELECT * INTO next FROM postrider_internal.next_of_subject(topic, subject, few + 1, 20000, next.of_dead_letters,
            next.at, next.id);
        ids := ids || next.ids;
        EXIT WHEN next.last AND cardinality(ids) <= few;
        IF cardinality(ids) > few OR clock_timestamp() - began > interval '1 second' THEN
            erased := 0;
            o.kind := 'erase_subject';
            o.topic := erase_subject.topic;
            o.filter := jsonb_build_object('topic', topic, 'subject', subject);
            operation_id := postrider_internal.start_operation(o, actor, address);
            RETURN;
        END IF;
    END LOOP;
    erased := postrider_internal.erase_events(ids, '-infinity', actor, address);
    PERFORM postrider_internal.note_audit(actor, address, 'subject_erased', topic, NULL, jsonb_build_object('events',
        erased));
END $$;

-- One step of an erasure. What it rejects, such as a dead letter that is being exported, is retried later.
CREATE FUNCTION postrider_internal.step_erasure(operation uuid, most integer, scan_limit integer, OUT done bigint,
    OUT reached_at timestamptz, OUT reached_id uuid, OUT of_dead_letters boolean, OUT last boolean)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    o postrider_internal.operations;
    ids uuid[];
    repairs uuid[];
BEGIN
    SELECT p.* INTO o FROM postrider_internal.operations p WHERE p.id = operation;
    SELECT n.ids, n.at, n.id, n.of_dead_letters, n.last INTO ids, reached_at, reached_id, of_dead_letters, last
      FROM postrider_internal.next_of_subject(o.topic, o.filter ->> 'subject', most, scan_limit, o.of_dead_letters,
          o.cursor_at,
          o.cursor_id) n;
    repairs := postrider_internal.repairs_of_subject(o.topic, o.filter ->> 'subject', most);
    done := postrider_internal.erase_events(ids || repairs, '-infinity', 'postrider', '');
    last := last AND repairs = '{}'; -- an erasure removes them from this search
    IF last THEN
        PERFORM postrider_internal.forget_filters(o.topic, o.filter ->> 'subject', o.id);
    END IF;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION postrider_internal.step_erasure, postrider_internal.erase_subject, postrider_internal.next_of_subject,
    postrider_internal.forget_filters, postrider_internal.erase_event, postrider_internal.erase_events,
    postrider_internal.reject_exporting;
