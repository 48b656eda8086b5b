-- +goose Up
-- The erasure of events.

-- +goose StatementBegin
-- Rejects erasing what a node may be exporting now: it has read the bodies. The dead letters are locked against being
-- claimed by an export, and the jobs of their exports against being started. A locked job is being started or ended: it
-- is not waited for.
CREATE FUNCTION postrider_internal.reject_exporting(events uuid[]) RETURNS void LANGUAGE plpgsql AS $$
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
LANGUAGE plpgsql AS $$
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
            upper(current_setting('transaction_isolation'))),
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
    UPDATE postrider_internal.operation_results r SET result = 'invalid: its event was erased'
     WHERE r.result LIKE 'invalid: %' AND r.dead_letter_id IN (SELECT l.id FROM postrider_internal.dead_letters l
         WHERE l.event_uuid = ANY (ids));
    -- Dead letters and attempts may be kept longer than deliveries.
    SELECT array_agg(id) INTO redelivered FROM (SELECT h.id FROM postrider_internal.delivery_history h
        WHERE h.event_uuid = ANY (ids)
                                          UNION SELECT l.delivery_id FROM postrider_internal.dead_letters l
                                          WHERE l.event_uuid = ANY (ids)) d(id);
    UPDATE postrider_internal.delivery_attempts a SET error = NULL, request_headers = NULL, response_headers = NULL,
        response_excerpt = NULL
     WHERE a.delivery_id = ANY (redelivered) OR a.batch_id = ANY (ARRAY (SELECT m.batch_id
         FROM postrider_internal.batch_members m WHERE m.delivery_id = ANY (redelivered)));
    RETURN (SELECT count(DISTINCT e) FROM unnest(erased) e);
END $$;

CREATE FUNCTION postrider_internal.erase_event(system_id uuid, day date, actor text, address text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    topic text;
    erased bigint;
BEGIN
    SELECT t.name INTO topic FROM postrider_internal.events e JOIN postrider_internal.topics t ON t.id = e.topic_id
     WHERE e.id = system_id AND e.day BETWEEN coalesce(erase_event.day, '-infinity') AND coalesce(erase_event.day,
         'infinity');
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
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION postrider_internal.erase_event, postrider_internal.erase_events, postrider_internal.reject_exporting;
