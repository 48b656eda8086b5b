-- +goose Up
-- Redelivering and purging dead letters, one by one and many at once, and past events to one event subscription.
--
-- A redelivery is a new delivery of the same event: no attempts, its own time to live, redelivered_from. It is created
-- on hold and without a job, and released like every held delivery: after pauses, probation and limits, and as part of
-- a batch if its event subscription has batches.

-- +goose StatementBegin
-- The length of a text inside a JSON string, as event.Size counts it.
CREATE FUNCTION postrider_internal.quoted_length(given text) RETURNS integer LANGUAGE sql
    IMMUTABLE STRICT PARALLEL SAFE AS $$
SELECT octet_length(given) + length(given) - length(translate(given, '"\', '')) + 5 *
    (length(given) - length(regexp_replace(given, '[\x01-\x1f]', '', 'g'))) $$;

-- Which schema can be delivered as which, as event.CanDeliver decides it.
CREATE FUNCTION postrider_internal.can_deliver(input text, delivery text) RETURNS boolean LANGUAGE sql
    IMMUTABLE PARALLEL SAFE AS $$
SELECT (input, delivery) IN (('EventGridSchema', 'EventGridSchema'), ('EventGridSchema', 'CloudEventSchemaV1_0'),
    ('CloudEventSchemaV1_0', 'CloudEventSchemaV1_0'),
                             ('CustomEventSchema', 'EventGridSchema'), ('CustomEventSchema', 'CloudEventSchemaV1_0'),
                             ('CustomEventSchema', 'CustomInputSchema')) $$;

-- The first day whose events may be referenced. Retention never removes yesterday, and the transaction may stay open
-- for an hour. An older day may be detached soon, and a delivery whose event is gone would be dropped: such events are
-- stored again under today's day.
CREATE FUNCTION postrider_internal.first_sure_day() RETURNS date LANGUAGE sql STABLE AS $$
SELECT ((clock_timestamp() + interval '1 hour') AT TIME ZONE 'UTC')::date - 1 $$;

-- Today, as publishing uses it.
CREATE FUNCTION postrider_internal.day_of_publishing() RETURNS date LANGUAGE plpgsql STABLE AS $$
DECLARE
    today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
BEGIN
    IF to_regclass('postrider_internal.events_' || to_char(today, 'YYYYMMDD')) IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('there is no partition for events of %s', today),
            HINT = 'Start postrider serve: it creates them seven days ahead.';
    END IF;
    RETURN today;
END $$;

-- The size of a delivery's event, as event.Size counts it: its body, and a custom event's envelope.
CREATE FUNCTION postrider_internal.event_bytes(schema text, body integer, event_id text, event_type text, subject text,
    data_version text) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT body + CASE schema WHEN 'CustomEventSchema'
    THEN postrider_internal.quoted_length(event_id) + postrider_internal.quoted_length(event_type)
        + postrider_internal.quoted_length(subject) + postrider_internal.quoted_length(data_version) ELSE 0 END $$;

-- Why a dead letter cannot be redelivered to an event subscription; NULL = it can.
CREATE FUNCTION postrider_internal.redelivery_problem(bytes integer, schema text, redelivered_at timestamptz,
    again_before timestamptz, s postrider_internal.event_subscriptions) RETURNS text LANGUAGE sql STABLE AS $$
SELECT CASE WHEN bytes = 0 THEN 'erased'
            WHEN redelivered_at >= coalesce(again_before, '-infinity') THEN 'redelivered'
            WHEN s.id IS NULL OR s.deleted_at IS NOT NULL THEN 'deleted'
            WHEN s.expiration_time_utc <= clock_timestamp() THEN 'expired'
            WHEN NOT postrider_internal.can_deliver(schema, s.event_delivery_schema) THEN 'schema' END $$;

-- Redelivers dead letters to target, or each to its own event subscription. Returns for each existing one its new
-- delivery and its event, or the obstacle: redelivered, deleted, expired, schema or erased (its body is gone). One that
-- was redelivered before the given time is redelivered again. operation is the operation that does it; NULL = none.
--
-- edits are the events to deliver instead, one for each id or NULL; edited_by made them. Such an event is stored as a
-- new one with its lineage.
--
-- Dead letters are locked by id, then the event subscriptions, against a deletion that would not see these deliveries.
-- Holds are not locked: refilling checks them again.
CREATE FUNCTION postrider_internal.redeliver_dead_letters(ids uuid[], edits postrider_internal.envelope[],
    edited_by text, target bigint, again_before timestamptz, operation uuid)
    RETURNS TABLE (letter uuid, delivery bigint, event uuid, problem text) LANGUAGE plpgsql AS $$
DECLARE
    today date := postrider_internal.day_of_publishing();
    sure date := postrider_internal.first_sure_day();
    at timestamptz := clock_timestamp();
BEGIN
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
        SELECT l.id, coalesce(n.id, l.event_uuid) AS event_uuid, s.id AS subscription_id, s.topic_id,
               CASE WHEN n.id IS NULL
                    THEN postrider_internal.event_bytes(l.schema, octet_length(l.body), l.event_id, l.event_type,
                        l.subject, l.data_version)
                    ELSE postrider_internal.event_bytes(l.schema, octet_length(n.body), n.event_id, n.event_type,
                        n.subject, n.data_version) END AS event_bytes,
               CASE WHEN n.id IS NULL AND l.event_day >= sure AND (SELECT true FROM postrider_internal.events e
                   WHERE e.id = l.event_uuid AND e.day = l.event_day LIMIT 1) THEN l.event_day END AS event_day,
               postrider_internal.redelivery_problem(octet_length(l.body), l.schema, l.redelivered_at, again_before, s)
                   AS problem
          FROM postrider_internal.dead_letters l
          LEFT JOIN postrider_internal.event_subscriptions s ON s.id = coalesce(target, l.subscription_id)
          LEFT JOIN edited n ON n.dead_letter_id = l.id
         WHERE l.id = ANY (ids)
    ), fit AS MATERIALIZED (
        SELECT nextval('postrider_internal.deliveries_id_seq') AS delivery_id, f.* FROM (SELECT * FROM checked j
            WHERE j.problem IS NULL ORDER BY j.event_uuid, j.id) f
    ), holds AS MATERIALIZED (
        SELECT f.subscription_id, postrider_internal.hold_of(f.subscription_id) AS hold FROM fit f GROUP BY 1
    ), stored AS (
        INSERT INTO postrider_internal.events (id, day, topic_id, published_at, event_time, event_id, event_type,
            subject, source, data_version, schema, traceparent, tracestate, body)
        SELECT l.event_uuid, today, l.topic_id, l.published_at, l.event_time, l.event_id, l.event_type, l.subject,
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
               postrider_internal.json_patch(postrider.try_jsonb(l.body), postrider.try_jsonb(n.body)),
               CASE WHEN n.subject <> l.subject THEN l.subject END
          FROM repaired p JOIN edited n ON n.id = p.id JOIN postrider_internal.dead_letters l ON l.id = n.dead_letter_id
         WHERE l.id = ANY (ids)
    ), created AS (
        INSERT INTO postrider_internal.deliveries (id, subscription_id, topic_id, event_uuid, event_day, event_bytes,
            hold, time_to_live_since, next_attempt_at,
               redelivered_from, operation_id)
        SELECT f.delivery_id, f.subscription_id, f.topic_id, f.event_uuid, coalesce(f.event_day, today), f.event_bytes,
               h.hold, at, at,
               f.id, operation
          FROM fit f JOIN holds h ON h.subscription_id = f.subscription_id ORDER BY f.delivery_id
    ), marked AS (
        UPDATE postrider_internal.dead_letters l SET redelivered_at = at FROM fit f WHERE l.id = f.id
            AND l.id = ANY (ids)
    ), rolled AS (
        INSERT INTO postrider_internal.rollup_deltas (slot, entries)
        SELECT (c.topic_id + c.subscription_id) % 8, array_agg(ROW (date_trunc('minute', now()), c.topic_id,
            c.subscription_id, 'matched', '', NULL::int, c.n, NULL)::postrider_internal.rollup_entry)
          FROM (SELECT f.topic_id, f.subscription_id, count(*) AS n FROM fit f GROUP BY 1, 2) c GROUP BY 1
    )
    SELECT j.id, f.delivery_id, j.event_uuid, j.problem FROM checked j LEFT JOIN fit f ON f.id = j.id
     ORDER BY f.delivery_id;
END $$;

-- Redelivers events of one day to one event subscription whose filter matches them, as the caller has checked. sizes
-- are event.Size. The events are locked against an erasure, which would see neither the new rows nor the deliveries.
-- Events that were erased meanwhile are left out.
CREATE FUNCTION postrider_internal.redeliver_past(ids uuid[], sizes integer[], event_day date, target bigint,
    operation uuid) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    today date := postrider_internal.day_of_publishing();
    at timestamptz := clock_timestamp();
    kept uuid[];
    created bigint;
    t bigint;
BEGIN
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
    SELECT target, t, o.id, redeliver_past.event_day, o.bytes, postrider_internal.hold_of(target), at, at, operation,
           operation
      FROM (SELECT * FROM unnest(ids, sizes) AS u(id, bytes) WHERE u.id = ANY (kept) ORDER BY u.id) o;
    GET DIAGNOSTICS created = ROW_COUNT;
    INSERT INTO postrider_internal.rollup_deltas (slot, entries)
    SELECT (t + target) % 8, ARRAY [ROW (date_trunc('minute', now()), t, target, 'matched', '', NULL::int, created,
        NULL)::postrider_internal.rollup_entry] WHERE created > 0;
    RETURN created;
END $$;

-- The event subscription that a redelivery names, or an error.
CREATE FUNCTION postrider_internal.redelivery_target(topic text, subscription text) RETURNS bigint
LANGUAGE plpgsql AS $$
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

CREATE FUNCTION postrider_internal.reject_dead_letter(id uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'P0002', MESSAGE = CASE WHEN id IS NULL
        THEN 'dead_letter_id is required' ELSE format('dead letter %s does not exist', id) END,
        HINT = 'SELECT dead_letter_id FROM postrider.dead_letters lists those there are.';
END $$;

-- The version of a dead letter, for conditional requests.
CREATE FUNCTION postrider_internal.dead_letter_version(dead_lettered_at timestamptz, redelivered_at timestamptz,
    erased_at timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT (extract(epoch FROM greatest(dead_lettered_at, redelivered_at, erased_at)) * 1000000)::bigint $$;

-- Redelivers one dead letter. versions are those that it may have; NULL = any. edit is the event to deliver instead,
-- already validated; event is one that is still to be validated.
CREATE FUNCTION postrider_internal.redeliver(dead_letter_id uuid, subscription text, topic text, again boolean,
    versions bigint[], event jsonb, edit postrider_internal.envelope, actor text, address text) RETURNS bigint
LANGUAGE plpgsql AS $$
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
           postrider_internal.dead_letter_version(d.dead_lettered_at, d.redelivered_at, d.erased_at) AS version INTO l
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
                (SELECT jsonb_agg(o.change -> 'path' ORDER BY o.n)
                   FROM postrider_internal.repairs p
                  CROSS JOIN jsonb_array_elements(p.edit) WITH ORDINALITY AS o(change, n)
                  WHERE p.system_id = r.event AND o.n <= 100)));
    END IF;
    RETURN r.delivery;
END $$;

CREATE FUNCTION postrider_internal.purge(dead_letter_id uuid, actor text, address text) RETURNS boolean
LANGUAGE plpgsql AS $$
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

-- Rejects a member of a filter.
CREATE FUNCTION postrider_internal.reject_filter(member text, problem text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = '22023', COLUMN = member, MESSAGE = format('%s %s', member, problem),
        HINT = 'A filter may have topic, subscription, reason, last_outcome, last_status, event_id, event_type, '
            'subject, subject_prefix, source, dead_lettered_from, dead_lettered_until, redelivered and '
            'dead_letter_ids.';
END $$;

-- A filter of dead letters as a condition on l. Values of the filter become quoted literals of a fixed type.
CREATE FUNCTION postrider_internal.dead_letter_condition(filter jsonb) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
    member text;
    value jsonb;
    given text;
    wanted text;
    conditions text := 'true';
BEGIN
    IF filter IS NULL OR jsonb_typeof(filter) <> 'object' THEN
        PERFORM postrider_internal.reject_filter('filter', CASE WHEN filter IS NULL
            THEN 'is required: {} matches every dead letter' ELSE 'must be an object, is '
            || postrider_internal.kind_in_words(filter) END);
    END IF;
    FOR member, value IN SELECT * FROM jsonb_each(filter) LOOP
        wanted := CASE WHEN member IN ('topic', 'subscription', 'reason', 'last_outcome', 'event_id', 'event_type',
            'subject', 'subject_prefix', 'source', 'dead_lettered_from', 'dead_lettered_until') THEN 'string'
                       WHEN member = 'last_status' THEN 'number' WHEN member = 'redelivered' THEN 'boolean'
                           WHEN member = 'dead_letter_ids' THEN 'array' END;
        given := value #>> '{}';
        IF wanted IS NULL THEN
            PERFORM postrider_internal.reject_filter(format('filter.%s', left(member, 64)), 'is no member of a filter');
        ELSIF jsonb_typeof(value) <> wanted THEN
            PERFORM postrider_internal.reject_filter('filter.' || member, format('must be %s, is %s',
                CASE wanted WHEN 'array' THEN 'an array' ELSE 'a ' || wanted END,
                postrider_internal.kind_in_words(value)));
        END IF;
        conditions := conditions || ' AND ' || CASE member
            WHEN 'subject_prefix' THEN format('starts_with(l.subject, %L::text)', given)
            WHEN 'last_status' THEN CASE WHEN abs(given::numeric) < 1000 AND given::numeric % 1 = 0
                THEN format('l.last_status = %s', given::numeric::integer) ELSE 'false' END
            WHEN 'redelivered' THEN format('(l.redelivered_at IS NOT NULL) = %L::boolean', given)
            WHEN 'dead_lettered_from' THEN format('l.dead_lettered_at >= %L::timestamptz',
                postrider_internal.filter_time('filter.' || member, given))
            WHEN 'dead_lettered_until' THEN format('l.dead_lettered_at < %L::timestamptz',
                postrider_internal.filter_time('filter.' || member, given))
            WHEN 'dead_letter_ids' THEN format('l.id = ANY (%L::uuid[])', postrider_internal.filter_ids('filter.'
                || member, value))
            ELSE format('l.%I = %L::text', member, given) END;
    END LOOP;
    RETURN conditions;
END $$;

CREATE FUNCTION postrider_internal.filter_time(member text, given text) RETURNS timestamptz LANGUAGE plpgsql
STABLE AS $$
BEGIN
    RETURN postrider_internal.envelope_time(member, given);
EXCEPTION WHEN invalid_parameter_value THEN
    RAISE EXCEPTION USING ERRCODE = '22023', COLUMN = member,
        MESSAGE = format('%s: "%s" is not an RFC 3339 time such as 2026-11-23T10:00:00Z', member, left(given, 64));
END $$;

CREATE FUNCTION postrider_internal.filter_ids(member text, value jsonb) RETURNS uuid[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    wrong jsonb;
BEGIN
    IF jsonb_array_length(value) > 5000 THEN
        PERFORM postrider_internal.reject_filter(member, format('holds at most 5000 ids, this one has %s',
            jsonb_array_length(value)));
    END IF;
    SELECT e INTO wrong FROM jsonb_array_elements(value) e
     WHERE jsonb_typeof(e) <> 'string' OR
         e #>> '{}' !~ '^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$' LIMIT 1;
    IF FOUND THEN
        PERFORM postrider_internal.reject_filter(member, format('must hold ids of dead letters, not %s',
            left(wrong::text, 64)));
    END IF;
    RETURN ARRAY (SELECT (e #>> '{}')::uuid FROM jsonb_array_elements(value) e);
END $$;

-- The position of the last dead letter of the next scan step, or nothing if no more than that many are left. If a
-- filter names an event, or a topic with its event subscription, an index has exactly those; ids are few.
CREATE FUNCTION postrider_internal.dead_letter_edge(filter jsonb, after_at timestamptz, after_id uuid,
    until timestamptz,
    scan_limit integer, OUT at timestamptz, OUT id uuid)
    LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF filter ? 'dead_letter_ids' THEN
        RETURN;
    END IF;
    EXECUTE 'SELECT l.dead_lettered_at, l.id FROM postrider_internal.dead_letters l WHERE (l.dead_lettered_at, l.id) > '
        '($1, $2) AND l.dead_lettered_at <= $3 AND '
        || CASE WHEN filter ? 'event_id' THEN format('l.event_id = %L::text', filter ->> 'event_id')
                WHEN filter ?& '{topic,subscription}' THEN format('l.topic = %L::text AND l.subscription = %L::text',
                    filter ->> 'topic', filter ->> 'subscription')
                ELSE 'true' END
        || ' ORDER BY l.dead_lettered_at, l.id OFFSET $4 LIMIT 1'
       INTO at, id USING greatest(after_at, postrider_internal.envelope_time('filter.dead_lettered_from',
           filter ->> 'dead_lettered_from')), after_id,
            least(until, postrider_internal.envelope_time('filter.dead_lettered_until',
                filter ->> 'dead_lettered_until')), scan_limit - 1;
END $$;

-- What a count reads: the index that has all the filter needs, or the table.
CREATE FUNCTION postrider_internal.scanned_for(filter jsonb) RETURNS regclass LANGUAGE sql STABLE AS $$
SELECT ('postrider_internal.dead_letters' || CASE ARRAY (SELECT k FROM jsonb_object_keys(filter) k
        WHERE k NOT IN ('dead_lettered_from', 'dead_lettered_until', 'redelivered') ORDER BY k)
    WHEN '{}' THEN '_time_idx' WHEN '{topic}' THEN '_name_idx' WHEN '{subscription,topic}' THEN '_name_idx'
    WHEN '{reason}' THEN '_reason_idx' WHEN '{last_status}' THEN '_status_idx' WHEN '{event_type}' THEN '_type_idx'
    ELSE '' END)::regclass $$;

-- Whether one scan, without steps, takes about a second at most.
CREATE FUNCTION postrider_internal.few_dead_letters(filter jsonb) RETURNS boolean LANGUAGE sql STABLE AS $$
SELECT pg_relation_size(postrider_internal.scanned_for(filter)) < 256 * 1024 * 1024 $$;

-- Counts the dead letters that a filter matches until the timeout, which it checks after every 20,000 unless there are
-- few. BETWEEN repeats the bounds of a step for the planner, which would expect a quarter of the table without it.
CREATE FUNCTION postrider_internal.measure_dead_letters(filter jsonb, until timestamptz, timeout interval,
    OUT matched bigint,
    OUT redelivered bigint, OUT at_least boolean) LANGUAGE plpgsql STABLE SET jit = off AS $$
DECLARE
    condition text := postrider_internal.dead_letter_condition(filter);
    began timestamptz := clock_timestamp();
    after_at timestamptz := '-infinity';
    after_id uuid := '00000000-0000-0000-0000-000000000000';
    edge record;
    n bigint;
    again bigint;
BEGIN
    matched := 0;
    redelivered := 0;
    IF postrider_internal.few_dead_letters(filter) THEN
        EXECUTE 'SELECT count(*), count(l.redelivered_at) FROM postrider_internal.dead_letters l WHERE '
            'l.dead_lettered_at <= $1 AND ' || condition INTO matched, redelivered USING until;
        at_least := false;
        RETURN;
    END IF;
    LOOP
        SELECT e.at, e.id INTO edge FROM postrider_internal.dead_letter_edge(filter, after_at, after_id, until,
            20000) e;
        EXECUTE 'SELECT count(*), count(l.redelivered_at) FROM postrider_internal.dead_letters l WHERE '
            '(l.dead_lettered_at, l.id) > ($1, $2) AND (l.dead_lettered_at, l.id) <= ($4, $5) '
            'AND l.dead_lettered_at BETWEEN $1 AND least($3, $4) AND ' || condition
           INTO n, again USING after_at, after_id, until, coalesce(edge.at, 'infinity'),
               coalesce(edge.id, 'ffffffff-ffff-ffff-ffff-ffffffffffff');
        matched := matched + n;
        redelivered := redelivered + again;
        at_least := edge.at IS NOT NULL;
        EXIT WHEN NOT at_least OR clock_timestamp() - began > timeout;
        after_at := edge.at;
        after_id := edge.id;
    END LOOP;
END $$;

-- Fails after the timeout instead of returning a partial count: a caller would take it for the whole number.
CREATE FUNCTION postrider_internal.count_to_the_end(what text, counted bigint, at_least boolean, timeout interval)
RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF at_least THEN
        RAISE EXCEPTION USING ERRCODE = '57014',
            MESSAGE = format('counting was stopped after %s seconds: there are at least %s %s', extract(epoch
            FROM timeout)::integer, counted, what),
            HINT = 'Narrow it down, by time for example.';
    END IF;
    RETURN counted;
END $$;

CREATE FUNCTION postrider_internal.count_dead_letters(filter jsonb, timeout interval) RETURNS bigint LANGUAGE sql
    STABLE AS $$
SELECT postrider_internal.count_to_the_end('dead letters that match', c.matched, c.at_least, timeout)
FROM postrider_internal.measure_dead_letters(filter, 'infinity', timeout) c $$;

-- One page of the dead letters that a filter matches, newest first, older than this position.
CREATE FUNCTION postrider_internal.find_dead_letters(filter jsonb, before timestamptz, before_id uuid, most integer)
RETURNS SETOF uuid LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY EXECUTE 'SELECT l.id FROM postrider_internal.dead_letters l WHERE (l.dead_lettered_at, l.id) < ($1, '
        '$2) AND ' || postrider_internal.dead_letter_condition(filter)
        || ' ORDER BY l.dead_lettered_at DESC, l.id DESC LIMIT $3' USING before, before_id, most;
END $$;

CREATE FUNCTION postrider.redeliver(dead_letter_id uuid, subscription text DEFAULT NULL, topic text DEFAULT NULL,
    again boolean DEFAULT false, event jsonb DEFAULT NULL) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT postrider_internal.redeliver($1, $2, $3, $4, NULL, $5, NULL, NULL, NULL) $$;

CREATE FUNCTION postrider.purge(dead_letter_id uuid) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT postrider_internal.purge($1, NULL, NULL) $$;

CREATE FUNCTION postrider.count_dead_letters(filter jsonb) RETURNS bigint
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT postrider_internal.count_dead_letters($1, '30 seconds') $$;
-- +goose StatementEnd

REVOKE EXECUTE ON FUNCTION postrider.redeliver(uuid, text, text, boolean, jsonb), postrider.purge(uuid),
    postrider.count_dead_letters(jsonb) FROM PUBLIC;
COMMENT ON FUNCTION postrider.redeliver(uuid, text, text, boolean, jsonb) IS
    'Redelivers a dead letter, as part of the calling transaction. The result is a new delivery without attempts and '
    'with its own time to live, to the same event subscription or to the named one (topic: default is the dead '
    'letter''s). Returns the delivery''s id. The dead letter stays, with redelivered_at. One that was redelivered '
    'before is rejected unless again is true. event: an edited event, which is delivered instead. It is validated as '
    'postrider.publish() does, and becomes a new event with its own system_id, edited_from, edited_by and edit. Only '
    'this event subscription receives it, whatever its filter.';
COMMENT ON FUNCTION postrider.purge(uuid) IS 'Removes a dead letter permanently. Returns false if it does not exist.';
COMMENT ON FUNCTION postrider.count_dead_letters(jsonb) IS
    'Returns how many dead letters a filter of redeliver_all() or purge_all() matches now. A filter is a JSON object; '
    'all its members must match, and {} matches every dead letter: topic, subscription, reason, last_outcome, '
    'last_status, event_id, event_type, subject, subject_prefix, source, dead_lettered_from (included), '
    'dead_lettered_until (excluded), redelivered (true or false), dead_letter_ids (an array of up to 5,000). Times '
    'are RFC 3339, such as 2026-11-23T10:00:00Z. If counting takes more than 30 s, an error has the count so far.';

-- +goose Down
DROP FUNCTION postrider.count_dead_letters, postrider.purge, postrider.redeliver,
    postrider_internal.find_dead_letters, postrider_internal.count_dead_letters, postrider_internal.count_to_the_end,
    postrider_internal.measure_dead_letters, postrider_internal.few_dead_letters, postrider_internal.scanned_for,
    postrider_internal.dead_letter_edge,
    postrider_internal.filter_ids, postrider_internal.filter_time, postrider_internal.dead_letter_condition,
    postrider_internal.reject_filter, postrider_internal.purge, postrider_internal.redeliver,
    postrider_internal.dead_letter_version, postrider_internal.reject_dead_letter,
    postrider_internal.redelivery_target,
    postrider_internal.redeliver_past, postrider_internal.redeliver_dead_letters, postrider_internal.redelivery_problem,
    postrider_internal.event_bytes,
    postrider_internal.day_of_publishing,
    postrider_internal.first_sure_day, postrider_internal.can_deliver, postrider_internal.quoted_length;
