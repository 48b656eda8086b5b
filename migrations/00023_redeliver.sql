-- +goose Up
-- Redelivering, resolving and purging dead letters, one by one and many at once, and past events to one event
-- subscription.
--
-- A redelivery is a new delivery of the same event: no attempts, its own time to live, redelivered_from. It is created
-- on hold and without a job, and released like every held delivery: after pauses, probation and limits, and as part of
-- a batch if its event subscription has batches.

-- +goose StatementBegin
-- The length of a text inside a JSON string, as event.Size counts it.
CREATE FUNCTION postrider_internal.quoted_length(given text) RETURNS integer LANGUAGE sql
    IMMUTABLE STRICT PARALLEL SAFE
RETURN octet_length(given) + length(given) - length(translate(given, '"\', '')) + 5 *
    (length(given) - length(regexp_replace(given, '[\x01-\x1f]', '', 'g')));

-- Which schema can be delivered as which, as event.CanDeliver decides it.
CREATE FUNCTION postrider_internal.can_deliver(input text, delivery text) RETURNS boolean LANGUAGE sql
    IMMUTABLE PARALLEL SAFE
RETURN (input, delivery) IN (('EventGridSchema', 'EventGridSchema'), ('EventGridSchema', 'CloudEventSchemaV1_0'),
    ('CloudEventSchemaV1_0', 'CloudEventSchemaV1_0'),
                             ('CustomEventSchema', 'EventGridSchema'), ('CustomEventSchema', 'CloudEventSchemaV1_0'),
                             ('CustomEventSchema', 'CustomInputSchema'));

-- The first day whose events may be referenced. Retention never removes yesterday, and the transaction may stay open
-- for an hour. An older day may be detached soon, and a delivery whose event is gone would be dropped: such events are
-- stored again under today's day.
CREATE FUNCTION postrider_internal.first_sure_day() RETURNS date LANGUAGE sql STABLE
RETURN ((clock_timestamp() + interval '1 hour') AT TIME ZONE 'UTC')::date - 1;

-- Today, as publishing uses it.
CREATE FUNCTION postrider_internal.day_of_publishing() RETURNS date LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
BEGIN
    IF to_regclass('postrider_internal.events_' || to_char(today, 'YYYYMMDD')) IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('there is no partition for events of %s', today),
            HINT = 'Start postrider serve: it creates them seven days ahead.';
    END IF;
    RETURN today;
END $$;

-- The size of a delivery's event, as event.Size counts it: its body, a custom event's envelope, and the source of an
-- event that is no CloudEvent.
CREATE FUNCTION postrider_internal.event_bytes(schema text, body integer, event_id text, event_type text, subject text,
    source text, data_version text) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN body + CASE schema WHEN 'CloudEventSchemaV1_0' THEN 0 ELSE postrider_internal.quoted_length(source) END
    + CASE schema WHEN 'CustomEventSchema' THEN postrider_internal.quoted_length(event_id)
        + postrider_internal.quoted_length(event_type)
        + postrider_internal.quoted_length(subject) + postrider_internal.quoted_length(data_version) ELSE 0 END;

-- Why a dead letter cannot be redelivered to an event subscription; NULL = it can.
CREATE FUNCTION postrider_internal.redelivery_problem(bytes integer, schema text, redelivered_at timestamptz,
    again_before timestamptz, s postrider_internal.event_subscriptions) RETURNS text LANGUAGE sql STABLE
RETURN CASE WHEN bytes = 0 THEN 'erased'
            WHEN redelivered_at >= coalesce(again_before, '-infinity') THEN 'redelivered'
            WHEN s.id IS NULL OR s.deleted_at IS NOT NULL THEN 'deleted'
            WHEN s.expiration_time_utc <= statement_timestamp() THEN 'expired'
            WHEN NOT postrider_internal.can_deliver(schema, s.event_delivery_schema) THEN 'schema' END;

-- When the first redelivery of an operation's next step is due, and the time from one to the next; NULL without a rate.
-- Permits of the last 0.1 s that no step has taken are taken later, because a step may be late.
CREATE FUNCTION postrider_internal.operation_permits(operation uuid, OUT first timestamptz, OUT step interval)
LANGUAGE sql STABLE BEGIN ATOMIC
SELECT greatest(r.next_at, CASE WHEN r.key IS NULL THEN now() ELSE now() - interval '0.1 seconds' END),
       interval '1 second' / o.rate_per_second
  FROM postrider_internal.operations o
  LEFT JOIN postrider_internal.delivery_rates r ON r.key = 'operation:' || o.id
 WHERE o.id = operation;
END;

-- Redelivers dead letters to target, or each to its own event subscription. Returns for each existing one its new
-- delivery and its event, or the obstacle: redelivered, deleted, expired, schema or erased (its body is gone). One that
-- was redelivered before the given time is redelivered again. operation is the operation that does it; NULL = none. It
-- leaves out resolved ones, unless its filter names that state. At its rate, the redeliveries are due one after the
-- other.
--
-- edits are the events to deliver instead, one for each id or NULL; edited_by made them. Such an event is stored as a
-- new one with its lineage.
--
-- Dead letters are locked by id, then the event subscriptions, against a deletion that would not see these deliveries.
-- Holds are not locked: refilling checks them again.
CREATE FUNCTION postrider_internal.redeliver_dead_letters(ids uuid[], edits postrider_internal.envelope[],
    edited_by text, target bigint, again_before timestamptz, operation uuid)
    RETURNS TABLE (letter uuid, delivery bigint, event uuid, problem text) LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    today date := postrider_internal.day_of_publishing();
    sure date := postrider_internal.first_sure_day();
    at timestamptz := clock_timestamp();
    first timestamptz;
    step interval;
    skip_resolved boolean := (SELECT o.filter ->> 'state' IS DISTINCT FROM 'resolved'
        FROM postrider_internal.operations o WHERE o.id = operation);
BEGIN
    SELECT t.first, t.step INTO first, step FROM postrider_internal.operation_permits(operation) t;
    PERFORM FROM postrider_internal.dead_letters l WHERE l.id = ANY (ids) ORDER BY l.id FOR UPDATE;
    PERFORM FROM postrider_internal.event_subscriptions s
      WHERE s.id = ANY (CASE WHEN target IS NOT NULL THEN ARRAY [target] ELSE ARRAY (SELECT l.subscription_id
          FROM postrider_internal.dead_letters l WHERE l.id = ANY (ids)) END)
      ORDER BY s.id FOR SHARE;
    RETURN QUERY
    WITH edited AS MATERIALIZED (
        SELECT * FROM unnest(ids, edits) AS n(dead_letter_id, id, event_time, event_id, event_type, subject, source,
            data_version, traceparent, tracestate, body) WHERE n.id IS NOT NULL
    ), checked AS MATERIALIZED (
        SELECT l.id, l.delivery_id AS ended, l.published_at, coalesce(n.id, l.event_uuid) AS event_uuid,
               s.id AS subscription_id, s.topic_id,
               CASE WHEN n.id IS NULL
                    THEN postrider_internal.event_bytes(l.schema, octet_length(l.body), l.event_id, l.event_type,
                        l.subject, l.source, l.data_version)
                    ELSE postrider_internal.event_bytes(l.schema, octet_length(n.body), n.event_id, n.event_type,
                        n.subject, n.source, n.data_version) END AS event_bytes,
               CASE WHEN n.id IS NULL AND l.event_day >= sure AND (SELECT true FROM postrider_internal.events e
                   WHERE e.id = l.event_uuid AND e.day = l.event_day LIMIT 1) THEN l.event_day END AS event_day,
               CASE WHEN skip_resolved AND l.resolved_at IS NOT NULL THEN 'resolved' ELSE
                   postrider_internal.redelivery_problem(octet_length(l.body), l.schema, l.redelivered_at, again_before,
                       s) END AS problem
          FROM postrider_internal.dead_letters l
          LEFT JOIN postrider_internal.event_subscriptions s ON s.id = coalesce(target, l.subscription_id)
          LEFT JOIN edited n ON n.dead_letter_id = l.id
         WHERE l.id = ANY (ids)
    ), fit AS MATERIALIZED (
        SELECT nextval('postrider_internal.deliveries_id_seq') AS delivery_id, f.* FROM (SELECT * FROM checked j
            WHERE j.problem IS NULL ORDER BY j.ended, j.published_at, j.id) f
    ), holds AS MATERIALIZED (
        SELECT f.subscription_id, postrider_internal.hold_without_job(f.subscription_id) AS hold FROM fit f GROUP BY 1
    ), stored AS (
        INSERT INTO postrider_internal.events (id, day, topic_id, published_at, event_time, matched, event_id,
            event_type, subject, source, data_version, schema, traceparent, tracestate, body)
        SELECT l.event_uuid, today, l.topic_id, l.published_at, l.event_time,
               CASE WHEN l.imported_from IS NOT NULL THEN 1 END, l.event_id, l.event_type, l.subject,
               l.source, l.data_version, l.schema, l.traceparent, l.tracestate, l.body
          FROM fit f JOIN postrider_internal.dead_letters l ON l.id = f.id
         WHERE f.event_day IS NULL AND f.event_uuid = l.event_uuid AND l.id = ANY (ids)
            ON CONFLICT DO NOTHING
    ), repaired AS (
        INSERT INTO postrider_internal.events (id, day, topic_id, published_at, event_time, matched, event_id,
            event_type, subject, source, data_version, schema, traceparent, tracestate, body)
        SELECT n.id, today, coalesce((SELECT e.topic_id FROM postrider_internal.events e WHERE e.id = l.event_uuid
                   AND e.day = l.event_day LIMIT 1), l.topic_id), at, n.event_time, 1, n.event_id, n.event_type,
               n.subject, n.source, n.data_version, l.schema, n.traceparent, n.tracestate, n.body
          FROM fit f JOIN edited n ON n.dead_letter_id = f.id JOIN postrider_internal.dead_letters l ON l.id = f.id
         WHERE l.id = ANY (ids)
        RETURNING id, topic_id
    ), lineage AS (
        INSERT INTO postrider_internal.repairs (system_id, edited_from, dead_letter_id, topic_id, edited_by, edited_at,
            edit, old_subject)
        SELECT n.id, l.event_uuid, l.id, p.topic_id, redeliver_dead_letters.edited_by, at,
               postrider_internal.merge_patch(postrider.try_jsonb(l.body), postrider.try_jsonb(n.body)),
               CASE WHEN n.subject <> l.subject THEN l.subject END
          FROM repaired p JOIN edited n ON n.id = p.id JOIN postrider_internal.dead_letters l ON l.id = n.dead_letter_id
         WHERE l.id = ANY (ids)
    ), created AS (
        INSERT INTO postrider_internal.deliveries (id, subscription_id, topic_id, event_uuid, event_day, event_bytes,
            hold, time_to_live_since, next_attempt_at,
               redelivered_from, operation_id)
        SELECT f.delivery_id, f.subscription_id, f.topic_id, f.event_uuid, coalesce(f.event_day, today), f.event_bytes,
               h.hold, at,
               coalesce(first + (row_number() OVER (ORDER BY f.delivery_id) - 1) * step, at),
               f.id, operation
          FROM fit f JOIN holds h ON h.subscription_id = f.subscription_id ORDER BY f.delivery_id
    ), marked AS (
        UPDATE postrider_internal.dead_letters l SET redelivered_at = at, redelivery_id = f.delivery_id,
               resolved_at = NULL, resolved_by = NULL, resolved_note = NULL
          FROM fit f WHERE l.id = f.id AND l.id = ANY (ids)
    ), rolled AS (
        INSERT INTO postrider_internal.rollup_deltas (entries)
        SELECT array_agg(postrider_internal.count_entry(c.topic_id, c.subscription_id, 'matched', c.n))
          FROM (SELECT f.topic_id, f.subscription_id, count(*) AS n FROM fit f GROUP BY 1, 2) c HAVING count(*) > 0
    )
    SELECT j.id, f.delivery_id, j.event_uuid, j.problem FROM checked j LEFT JOIN fit f ON f.id = j.id
     ORDER BY f.delivery_id;
END $$;

-- Redelivers events of one day to one event subscription whose filter matches them, as the caller has checked. sizes
-- are event.Size. The events are locked against an erasure, which would see neither the new rows nor the deliveries.
-- Events that were erased meanwhile are left out. Without an operation, a delivery is redelivered from its event.
CREATE FUNCTION postrider_internal.redeliver_past(ids uuid[], sizes integer[], event_day date, target bigint,
    operation uuid) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    today date := postrider_internal.day_of_publishing();
    at timestamptz := clock_timestamp();
    first timestamptz;
    step interval;
    kept uuid[];
    created bigint;
    t bigint;
BEGIN
    SELECT n.first, n.step INTO first, step FROM postrider_internal.operation_permits(operation) n;
    kept := ARRAY (SELECT e.id FROM postrider_internal.events e WHERE e.day = redeliver_past.event_day
        AND e.id = ANY (ids) AND e.erased_at IS NULL ORDER BY e.id FOR SHARE);
    IF event_day < postrider_internal.first_sure_day() THEN
        INSERT INTO postrider_internal.events (id, day, topic_id, published_at, event_time, event_id, event_type,
            subject, source, data_version, schema, traceparent, tracestate, body)
        SELECT e.id, today, e.topic_id, e.published_at, e.event_time, e.event_id, e.event_type, e.subject, e.source,
               e.data_version, e.schema, e.traceparent, e.tracestate, e.body
          FROM postrider_internal.events e WHERE e.day = redeliver_past.event_day AND e.id = ANY (kept)
            ON CONFLICT DO NOTHING;
        event_day := today;
    END IF;
    SELECT s.topic_id INTO t FROM postrider_internal.event_subscriptions s WHERE s.id = target;
    INSERT INTO postrider_internal.deliveries (subscription_id, topic_id, event_uuid, event_day, event_bytes, hold,
        time_to_live_since, next_attempt_at,
           redelivered_from, operation_id)
    SELECT target, t, o.id, redeliver_past.event_day, o.bytes, (SELECT postrider_internal.hold_without_job(target)),
           at, coalesce(first + (row_number() OVER (ORDER BY o.id) - 1) * step, at), coalesce(operation, o.id),
           operation
      FROM (SELECT * FROM unnest(ids, sizes) AS u(id, bytes) WHERE u.id = ANY (kept) ORDER BY u.id) o;
    GET DIAGNOSTICS created = ROW_COUNT;
    INSERT INTO postrider_internal.rollup_deltas (entries)
    SELECT ARRAY [postrider_internal.count_entry(t, target, 'matched', created)] WHERE created > 0;
    RETURN created;
END $$;

-- The event subscription that a redelivery names, or an error.
CREATE FUNCTION postrider_internal.redelivery_target(topic text, subscription text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s record;
BEGIN
    SELECT e.id, e.expiration_time_utc INTO s FROM postrider_internal.event_subscriptions e
    JOIN postrider_internal.topics t ON t.id = e.topic_id
     WHERE t.name = redelivery_target.topic AND t.deleted_at IS NULL AND e.name = redelivery_target.subscription
       AND e.deleted_at IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '22023', COLUMN = 'subscription',
            MESSAGE = format('topic "%s" has no event subscription "%s"', topic, subscription),
            HINT = 'SELECT topic, subscription FROM postrider.event_subscriptions lists those there are.';
    ELSIF s.expiration_time_utc <= clock_timestamp() THEN
        RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = 'expired', COLUMN = 'subscription',
            MESSAGE = format('event subscription "%s" of topic "%s" has expired', subscription, topic),
            HINT = 'Name another one as subscription.';
    END IF;
    RETURN s.id;
END $$;

CREATE FUNCTION postrider_internal.reject_dead_letter(id uuid) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'P0002', MESSAGE = CASE WHEN id IS NULL
        THEN 'dead_letter_id is required' ELSE format('dead letter %s does not exist', id) END,
        HINT = 'SELECT dead_letter_id FROM postrider.dead_letters lists those there are.';
END $$;

-- The version of a dead letter, for conditional requests.
CREATE FUNCTION postrider_internal.dead_letter_version(dead_lettered_at timestamptz, redelivered_at timestamptz,
    resolved_at timestamptz, erased_at timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (extract(epoch FROM greatest(dead_lettered_at, redelivered_at, resolved_at, erased_at)) * 1000000)::bigint;

-- Redelivers one dead letter. versions are those that it may have; NULL = any. edit is the event to deliver instead,
-- already validated; event is one that is still to be validated.
CREATE FUNCTION postrider_internal.redeliver(dead_letter_id uuid, subscription text, topic text, again boolean,
    versions bigint[], event jsonb, edit postrider_internal.envelope, actor text, address text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l record;
    target bigint;
    r record;
BEGIN
    IF topic IS NOT NULL AND subscription IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023', COLUMN = 'subscription',
            MESSAGE = 'subscription is required with topic';
    END IF;
    PERFORM postrider_internal.commit_soon();
    SELECT d.topic, d.subscription, d.redelivered_at, d.schema,
           postrider_internal.dead_letter_version(d.dead_lettered_at, d.redelivered_at, d.resolved_at, d.erased_at)
               AS version INTO l
      FROM postrider_internal.dead_letters d WHERE d.id = dead_letter_id FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM postrider_internal.reject_dead_letter(dead_letter_id);
    ELSIF l.version <> ALL (versions) THEN
        RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = 'precondition',
            MESSAGE = format('dead letter %s has changed: read it again', dead_letter_id);
    END IF;
    l.topic := coalesce(topic, l.topic);
    IF subscription IS NOT NULL THEN
        target := postrider_internal.redelivery_target(l.topic, subscription);
        l.subscription := subscription;
    END IF;
    IF event IS NOT NULL THEN
        edit := postrider_internal.read_edit(dead_letter_id, event);
    END IF;
    SELECT * INTO STRICT r FROM postrider_internal.redeliver_dead_letters(ARRAY [dead_letter_id], ARRAY [edit],
        coalesce(actor, session_user), target, CASE WHEN again THEN 'infinity'::timestamptz END, NULL);
    IF r.problem IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = r.problem, MESSAGE = CASE r.problem
            WHEN 'erased' THEN format('the event of dead letter %s was erased', dead_letter_id)
            WHEN 'redelivered' THEN format('dead letter %s was redelivered already, at %s', dead_letter_id,
                l.redelivered_at)
            WHEN 'deleted' THEN format('event subscription "%s" of topic "%s" was deleted', l.subscription, l.topic)
            WHEN 'expired' THEN format('event subscription "%s" of topic "%s" has expired', l.subscription, l.topic)
            ELSE format('an event of %s cannot be delivered in the schema of event subscription "%s" of topic "%s"',
                l.schema, l.subscription, l.topic) END,
            HINT = CASE r.problem WHEN 'erased' THEN
                'Nothing is left that could be delivered; postrider.purge() removes the rest.' WHEN 'redelivered'
                THEN 'again => true redelivers it once more.' ELSE 'Name another one as subscription.' END;
    END IF;
    IF edit.id IS NULL THEN
        PERFORM postrider_internal.note_audit(actor, address, 'dead_letter_redelivered', l.topic, l.subscription,
            jsonb_build_object('deadLetterId', dead_letter_id, 'deliveryId', r.delivery));
    ELSE
        PERFORM postrider_internal.note_audit(actor, address, 'dead_letter_repaired', l.topic, l.subscription,
            jsonb_build_object('deadLetterId', dead_letter_id, 'deliveryId', r.delivery, 'systemId', r.event, 'paths',
                (SELECT postrider_internal.patch_paths(p.edit, 100) FROM postrider_internal.repairs p
                  WHERE p.system_id = r.event)));
    END IF;
    RETURN r.delivery;
END $$;

-- Redelivers one event to an event subscription of its topic. If its last delivery there became a dead letter, that one
-- is redelivered. The event is locked, so that two calls at once do not both find no pending delivery.
CREATE FUNCTION postrider_internal.redeliver_event(system_id uuid, subscription text, unmatched boolean, actor text,
    address text) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    e record;
    s postrider_internal.event_subscriptions;
    last record;
    problem text;
    delivery bigint;
BEGIN
    IF subscription IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023', COLUMN = 'subscription', MESSAGE = 'subscription is required';
    END IF;
    PERFORM postrider_internal.commit_soon();
    SELECT v.day, v.schema, v.matched, octet_length(v.body) AS length, t.name AS topic,
           postrider_internal.event_bytes(v.schema, octet_length(v.body), v.event_id, v.event_type, v.subject,
               v.source, v.data_version) AS bytes INTO e
      FROM postrider_internal.events v JOIN postrider_internal.topics t ON t.id = v.topic_id
     WHERE v.id = system_id ORDER BY v.day DESC LIMIT 1 FOR NO KEY UPDATE OF v;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'P0002', MESSAGE = CASE WHEN system_id IS NULL THEN 'system_id is required'
            ELSE format('event %s does not exist, or is no longer kept', system_id) END,
            HINT = 'SELECT system_id FROM postrider.events lists those there are.';
    END IF;
    SELECT * INTO s FROM postrider_internal.event_subscriptions x
     WHERE x.id = postrider_internal.redelivery_target(e.topic, subscription) FOR SHARE;
    SELECT d.id, d.state, d.dead_letter_id INTO last FROM postrider_internal.all_deliveries d
     WHERE d.event_uuid = system_id AND d.subscription_id = s.id ORDER BY d.id DESC LIMIT 1;
    -- A copy of an old event has no number of matches either.
    problem := CASE WHEN e.matched IS NULL
                         AND (EXISTS (SELECT FROM postrider_internal.routes r WHERE system_id = ANY (r.event_uuids))
                              OR EXISTS (SELECT FROM postrider_internal.sql_publishes p
                                          WHERE system_id = ANY (p.event_uuids))) THEN 'not_routed'
                    WHEN last.state = 'pending' THEN 'pending'
                    WHEN last.id IS NULL AND unmatched IS NOT TRUE THEN 'not_matched'
                    ELSE postrider_internal.redelivery_problem(e.length, e.schema, NULL, NULL, s) END;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = problem, MESSAGE = CASE problem
            WHEN 'not_routed' THEN format('event %s is not routed yet', system_id)
            WHEN 'pending' THEN format('delivery %s of event %s to event subscription "%s" is pending', last.id,
                system_id, subscription)
            WHEN 'not_matched' THEN format('event %s did not match event subscription "%s"', system_id, subscription)
            WHEN 'erased' THEN format('event %s was erased', system_id)
            WHEN 'deleted' THEN format('event subscription "%s" of topic "%s" was deleted', subscription, e.topic)
            WHEN 'expired' THEN format('event subscription "%s" of topic "%s" has expired', subscription, e.topic)
            ELSE format('an event of %s cannot be delivered in the schema of event subscription "%s" of topic "%s"',
                e.schema, subscription, e.topic) END,
            HINT = CASE problem WHEN 'not_routed' THEN 'Try again in some seconds.'
                WHEN 'pending' THEN 'postrider.retry_now() makes its next attempt due now.'
                WHEN 'not_matched' THEN 'unmatched => true delivers it all the same.'
                WHEN 'erased' THEN 'Nothing is left that could be delivered.'
                ELSE 'Name another one as subscription.' END;
    ELSIF EXISTS (SELECT FROM postrider_internal.dead_letters l WHERE l.id = last.dead_letter_id) THEN
        RETURN postrider_internal.redeliver(last.dead_letter_id, NULL, NULL, true, NULL, NULL, NULL, actor, address);
    END IF;
    PERFORM postrider_internal.redeliver_past(ARRAY [system_id], ARRAY [e.bytes], e.day, s.id, NULL);
    SELECT max(d.id) INTO delivery FROM postrider_internal.deliveries d
     WHERE d.event_uuid = system_id AND d.subscription_id = s.id;
    PERFORM postrider_internal.note_audit(actor, address, 'event_redelivered', e.topic, subscription,
        jsonb_build_object('systemId', system_id, 'deliveryId', delivery));
    RETURN delivery;
END $$;

CREATE FUNCTION postrider_internal.check_note(note text) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF length(note) > 1000 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', COLUMN = 'note',
            MESSAGE = format('note must have at most 1000 characters, has %s', length(note));
    END IF;
END $$;

-- Resolves dead letters, or opens them again: those that are in a state, NULL = any. Returns their number. They are
-- locked by id, as by a redelivery.
CREATE FUNCTION postrider_internal.resolve_dead_letters(ids uuid[], wanted text, resolved boolean, note text,
    actor text)
RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    changed bigint;
BEGIN
    PERFORM FROM postrider_internal.dead_letters l WHERE l.id = ANY (ids) ORDER BY l.id FOR UPDATE;
    UPDATE postrider_internal.dead_letters l
       SET resolved_at = CASE WHEN resolved THEN clock_timestamp() END, resolved_by = CASE WHEN resolved THEN actor END,
           resolved_note = CASE WHEN resolved THEN nullif(note, '') END
     WHERE l.id = ANY (ids) AND (wanted IS NULL OR l.state = wanted);
    GET DIAGNOSTICS changed = ROW_COUNT;
    RETURN changed;
END $$;

-- Resolves one dead letter, or opens it again.
CREATE FUNCTION postrider_internal.resolve(dead_letter_id uuid, resolved boolean, note text, actor text, address text)
RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l record;
BEGIN
    PERFORM postrider_internal.check_note(note);
    PERFORM postrider_internal.commit_soon();
    IF postrider_internal.resolve_dead_letters(ARRAY [dead_letter_id], NULL, resolved, note,
        coalesce(actor, session_user)) = 0 THEN
        PERFORM postrider_internal.reject_dead_letter(dead_letter_id);
    END IF;
    SELECT d.topic, d.subscription, d.state INTO l FROM postrider_internal.dead_letters d WHERE d.id = dead_letter_id;
    PERFORM postrider_internal.note_audit(actor, address, CASE WHEN resolved THEN 'dead_letter_resolved'
        ELSE 'dead_letter_reopened' END, l.topic, l.subscription,
        jsonb_build_object('deadLetterId', dead_letter_id, 'note', nullif(note, '')));
    RETURN l.state;
END $$;

CREATE FUNCTION postrider_internal.purge(dead_letter_id uuid, actor text, address text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l record;
BEGIN
    PERFORM postrider_internal.commit_soon();
    DELETE FROM postrider_internal.dead_letters d WHERE d.id = dead_letter_id RETURNING d.topic, d.subscription,
        d.event_id INTO l;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM postrider_internal.note_audit(actor, address, 'dead_letter_purged', l.topic, l.subscription,
        jsonb_build_object('deadLetterId', dead_letter_id, 'eventId', l.event_id));
    RETURN true;
END $$;

CREATE FUNCTION postrider.redeliver(dead_letter_id uuid, subscription text DEFAULT NULL, topic text DEFAULT NULL,
    again boolean DEFAULT false, event jsonb DEFAULT NULL) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN postrider_internal.redeliver($1, $2, $3, $4, NULL, $5, NULL, NULL, NULL);

CREATE FUNCTION postrider.redeliver_event(system_id uuid, subscription text, unmatched boolean DEFAULT false)
    RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN postrider_internal.redeliver_event($1, $2, $3, NULL, NULL);

CREATE FUNCTION postrider.resolve(dead_letter_id uuid, note text DEFAULT NULL) RETURNS text
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN postrider_internal.resolve($1, true, $2, NULL, NULL);

CREATE FUNCTION postrider.reopen(dead_letter_id uuid) RETURNS text
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN postrider_internal.resolve($1, false, NULL, NULL, NULL);

CREATE FUNCTION postrider.purge(dead_letter_id uuid) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp RETURN postrider_internal.purge($1, NULL, NULL);
-- +goose StatementEnd

REVOKE EXECUTE ON FUNCTION postrider.redeliver(uuid, text, text, boolean, jsonb),
    postrider.redeliver_event(uuid, text, boolean), postrider.resolve(uuid, text), postrider.reopen(uuid),
    postrider.purge(uuid) FROM PUBLIC;
COMMENT ON FUNCTION postrider.redeliver(uuid, text, text, boolean, jsonb) IS
    'Redelivers a dead letter, as part of the calling transaction. The result is a new delivery without attempts and '
    'with its own time to live, to the same event subscription or to the named one (topic: default is the dead '
    'letter''s). Returns the delivery''s id. The dead letter stays, with redelivered_at. One that was redelivered '
    'before is rejected unless again is true. event: an edited event, which is delivered instead. It is validated as '
    'postrider.publish() does, and becomes a new event with its own system_id, edited_from, edited_by and edit. Only '
    'this event subscription receives it, whatever its filter.';
COMMENT ON FUNCTION postrider.redeliver_event(uuid, text, boolean) IS
    'Delivers an event that is still kept once more to one event subscription of its topic, also if it was delivered '
    'before. The result is a new delivery without attempts and with its own time to live. Returns the delivery''s id. '
    'If its last delivery there became a dead letter, that one is redelivered. Fails while a delivery of the event to '
    'this event subscription is pending. unmatched: true also delivers it if it did not match the event '
    'subscription, or was published before that was created.';
COMMENT ON FUNCTION postrider.resolve(uuid, text) IS
    'Resolves a dead letter without a redelivery: state resolved, with resolved_at, resolved_by and a note of up to '
    '1,000 characters. It is no longer counted as open; it can still be redelivered. Of a resolved one it replaces '
    'the note. Returns the state.';
COMMENT ON FUNCTION postrider.reopen(uuid) IS
    'Takes postrider.resolve() back. Returns the state: open, or redelivered if it was redelivered before.';
COMMENT ON FUNCTION postrider.purge(uuid) IS 'Removes a dead letter permanently. Returns false if it does not exist.';

-- +goose Down
DROP FUNCTION postrider.purge, postrider.reopen, postrider.resolve, postrider.redeliver_event, postrider.redeliver,
    postrider_internal.purge, postrider_internal.resolve, postrider_internal.resolve_dead_letters,
    postrider_internal.check_note, postrider_internal.redeliver_event, postrider_internal.redeliver,
    postrider_internal.dead_letter_version, postrider_internal.reject_dead_letter,
    postrider_internal.redelivery_target,
    postrider_internal.redeliver_past, postrider_internal.redeliver_dead_letters, postrider_internal.operation_permits,
    postrider_internal.redelivery_problem,
    postrider_internal.event_bytes,
    postrider_internal.day_of_publishing,
    postrider_internal.first_sure_day, postrider_internal.can_deliver, postrider_internal.quoted_length;
