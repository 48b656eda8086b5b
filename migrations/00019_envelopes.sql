-- +goose Up
-- Publishing in one's own transaction. The events are stored with a row that is seen when the caller commits, and the
-- nodes make their deliveries then: nothing here looks at event subscriptions, and nothing of theirs is locked.

-- What the columns of an event are taken from.
CREATE TYPE postrider_internal.envelope AS (
    id uuid, event_time timestamptz, event_id text, event_type text, subject text, source text, data_version text,
    traceparent text, tracestate text, body bytea
);

-- +goose StatementBegin
-- Refuses a publish: 22023 with a message that reads "event.eventType is required", and the field as COLUMN for
-- programs.
CREATE FUNCTION postrider_internal.refuse_event(field text, problem text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('%s %s', field, problem), COLUMN = field;
END $$;

CREATE FUNCTION postrider_internal.kind_in_words(value jsonb) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CASE jsonb_typeof(value) WHEN 'object' THEN 'an object' WHEN 'array' THEN 'an array' WHEN 'string'
    THEN 'a string' WHEN 'boolean' THEN 'a boolean'
            WHEN 'number' THEN 'a number' ELSE 'null' END $$;

-- A text of an envelope, NULL where it is absent or null and may be. Lengths are bytes. A line break would begin a
-- header of the publisher's own, where such a text goes into one. also_numbers: the digits of a number will do.
CREATE FUNCTION postrider_internal.envelope_text(event jsonb, place text, name text, required boolean,
    least_bytes integer, most_bytes integer, also_numbers boolean DEFAULT false)
    RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    given text := event ->> name;
    bytes integer;
BEGIN
    IF given IS NULL THEN
        IF required THEN
            PERFORM postrider_internal.refuse_event(place || '.' || name, 'is required');
        END IF;
        RETURN NULL;
    END IF;
    IF jsonb_typeof(event -> name) <> 'string' AND NOT (also_numbers AND jsonb_typeof(event -> name) = 'number') THEN
        PERFORM postrider_internal.refuse_event(place || '.' || name,
            format('must be a string%s, is %s', CASE WHEN also_numbers THEN ' or a number' END,
                postrider_internal.kind_in_words(event -> name)));
    END IF;
    bytes := octet_length(given);
    IF bytes < least_bytes OR bytes > most_bytes THEN
        PERFORM postrider_internal.refuse_event(place || '.' || name, format('must be %s to %s bytes long, is %s',
            least_bytes, most_bytes, bytes));
    END IF;
    IF strpos(given, E'\n') > 0 OR strpos(given, E'\r') > 0 THEN
        PERFORM postrider_internal.refuse_event(place || '.' || name, 'must not contain a line break');
    END IF;
    RETURN given;
END $$;

-- An RFC 3339 time. The calendar is checked here: to catch the error of a cast would cost a subtransaction for each
-- event.
CREATE FUNCTION postrider_internal.envelope_time(field text, given text) RETURNS timestamptz LANGUAGE plpgsql
    STABLE AS $$
DECLARE
    moment timestamptz;
BEGIN
    IF given IS NULL THEN
        RETURN NULL;
    END IF;
    IF given !~*
        '^(?!0000)\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])t([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(z|[+-]([01]\d|'
        '2[0-3]):[0-5]\d)$'
       OR substr(given, 9, 2)::integer > extract(day
           FROM (substr(given, 1, 7) || '-01')::date + interval '1 month - 1 day') THEN
        PERFORM postrider_internal.refuse_event(field, 'not an RFC 3339 time');
    END IF;
    -- PostgreSQL reads offsets of up to 15:59.
    moment := (substr(given, 1, 19) || 'Z')::timestamptz + coalesce(substring(given FROM '^.{19}(\.\d+)'),
        '0')::numeric * interval '1 second';
    IF right(given, 1) NOT IN ('Z', 'z') THEN
        moment := moment - (substr(given, length(given) - 5, 1) || '1')::integer
                     * make_interval(hours => substr(given, length(given) - 4, 2)::integer,
                         mins => right(given, 2)::integer);
    END IF;
    IF moment < '0001-01-01T00:00:00Z' OR moment >= '10000-01-01T00:00:00Z' THEN
        PERFORM postrider_internal.refuse_event(field, 'not an RFC 3339 time');
    END IF;
    RETURN nullif(moment, '0001-01-01T00:00:00Z'); -- no time at all, as everywhere in the service
END $$;

-- How deep objects and arrays nest. Strings are taken out first, then pairs of brackets, innermost first.
CREATE FUNCTION postrider_internal.nests_deeper(body text, most integer) RETURNS boolean LANGUAGE plpgsql
    IMMUTABLE AS $$
DECLARE
    brackets text;
BEGIN
    IF length(body) - length(replace(replace(body, '{', ''), '[', '')) <= most THEN
        RETURN false;
    END IF;
    brackets := regexp_replace(regexp_replace(body, '"([^"\\]|\\.)*"', '', 'g'), '[^][{}]', '', 'g');
    FOR level IN 1 .. most LOOP
        brackets := regexp_replace(brackets, '\{\}|\[\]', '', 'g');
        EXIT WHEN brackets = '';
    END LOOP;
    RETURN brackets <> '';
END $$;

-- Distributed traces: what is malformed counts as not sent (W3C, Trace Context, 2021-11-23, section 2.2.2).
CREATE FUNCTION postrider_internal.with_trace(e postrider_internal.envelope, event jsonb)
RETURNS postrider_internal.envelope LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    parent text := CASE jsonb_typeof(event -> 'traceparent') WHEN 'string' THEN event ->> 'traceparent' END;
    state text := CASE jsonb_typeof(event -> 'tracestate') WHEN 'string' THEN event ->> 'tracestate' END;
BEGIN
    IF parent ~ '^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$'
       OR parent ~ '^(?!ff|00)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}-[!-~]*$'
           AND length(parent) <= 128 THEN
        e.traceparent := parent;
        IF state ~ '^[ -~]+$' AND length(state) <= 512 THEN
            e.tracestate := state;
        END IF;
    END IF;
    RETURN e;
END $$;

-- An event in the Event Grid schema. Its id and its time are made where they are missing.
-- Source: Microsoft, Azure Event Grid event schema, 2023-05-24.
CREATE FUNCTION postrider_internal.event_grid_envelope(e postrider_internal.envelope, event jsonb, place text,
    topic text, at timestamptz)
    RETURNS postrider_internal.envelope LANGUAGE plpgsql STABLE AS $$
DECLARE
    said text;
BEGIN
    IF event ->> 'id' IS NULL THEN
        event := event || jsonb_build_object('id', e.id);
    END IF;
    IF event ->> 'eventTime' IS NULL THEN
        event := event || jsonb_build_object('eventTime', to_char(at AT TIME ZONE 'UTC',
            'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'));
    END IF;
    e.event_id := postrider_internal.envelope_text(event, place, 'id', true, 1, 1024);
    e.subject := postrider_internal.envelope_text(event, place, 'subject', true, 0, 4096);
    e.event_type := postrider_internal.envelope_text(event, place, 'eventType', true, 1, 1024);
    e.event_time := postrider_internal.envelope_time(place || '.eventTime', postrider_internal.envelope_text(event,
        place, 'eventTime', true, 1, 1024));
    e.data_version := coalesce(postrider_internal.envelope_text(event, place, 'dataVersion', false, 0, 1024), '');
    e.source := '';
    said := postrider_internal.envelope_text(event, place, 'topic', false, 0, 1024);
    IF said <> '' AND said NOT IN (topic, '/topics/' || topic) THEN
        PERFORM postrider_internal.refuse_event(place || '.topic', format('must be absent, empty, "%s" or "/topics/%s"',
            topic, topic));
    END IF;
    IF postrider_internal.envelope_text(event, place, 'metadataVersion', false, 0, 1024) <> '1' THEN
        PERFORM postrider_internal.refuse_event(place || '.metadataVersion', 'must be absent or "1"');
    END IF;
    e.body := convert_to(event::text, 'UTF8');
    RETURN e;
END $$;

-- A CloudEvent. Its id and its specversion are made where they are missing; of its extensions, names and kinds are
-- checked. Source: CNCF, CloudEvents 1.0.2 and its JSON event format; the length of a name is Event Grid's.
CREATE FUNCTION postrider_internal.cloud_event_envelope(e postrider_internal.envelope, event jsonb, place text)
    RETURNS postrider_internal.envelope LANGUAGE plpgsql STABLE AS $$
DECLARE
    name text;
    value jsonb;
BEGIN
    IF event ->> 'id' IS NULL THEN
        event := event || jsonb_build_object('id', e.id);
    END IF;
    IF event ->> 'specversion' IS NULL THEN
        event := event || '{"specversion": "1.0"}';
    END IF;
    IF postrider_internal.envelope_text(event, place, 'specversion', true, 1, 1024) <> '1.0' THEN
        PERFORM postrider_internal.refuse_event(place || '.specversion', 'must be "1.0"');
    END IF;
    e.event_id := postrider_internal.envelope_text(event, place, 'id', true, 1, 1024);
    e.source := postrider_internal.envelope_text(event, place, 'source', true, 1, 1024);
    e.event_type := postrider_internal.envelope_text(event, place, 'type', true, 1, 1024);
    e.subject := coalesce(postrider_internal.envelope_text(event, place, 'subject', false, 1, 4096), '');
    e.event_time := postrider_internal.envelope_time(place || '.time', postrider_internal.envelope_text(event, place,
        'time', false, 1, 1024));
    PERFORM postrider_internal.envelope_text(event, place, 'datacontenttype', false, 1, 1024);
    PERFORM postrider_internal.envelope_text(event, place, 'dataschema', false, 1, 4096);
    e.data_version := '';
    IF event ->> 'data_base64' IS NOT NULL THEN
        IF event ? 'data' THEN
            PERFORM postrider_internal.refuse_event(place || '.data_base64', 'must not stand beside data');
        ELSIF jsonb_typeof(event -> 'data_base64') <> 'string' THEN
            PERFORM postrider_internal.refuse_event(place || '.data_base64', 'must be a string, is '
                || postrider_internal.kind_in_words(event -> 'data_base64'));
        ELSIF event ->> 'data_base64' !~ '^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$' THEN
            PERFORM postrider_internal.refuse_event(place || '.data_base64', 'must be base64 with padding');
        END IF;
    END IF;
    FOR name, value IN SELECT * FROM jsonb_each(event -
        '{specversion,id,source,type,subject,time,datacontenttype,dataschema,data,data_base64}'::text[]) LOOP
        IF name !~ '^[a-z0-9]{1,20}$' THEN
            PERFORM postrider_internal.refuse_event(place || '.' || name,
                'an extension attribute''s name must be 1 to 20 characters of a-z and 0-9');
        ELSIF jsonb_typeof(value) IN ('object', 'array') THEN
            PERFORM postrider_internal.refuse_event(place || '.' || name,
                'an extension attribute must be a string, a number or a boolean, is '
                    || postrider_internal.kind_in_words(value));
        END IF;
    END LOOP;
    e.body := convert_to(event::text, 'UTF8');
    RETURN postrider_internal.with_trace(e, event);
END $$;

-- One member of a custom event's envelope, where its topic's mapping says: a field, a default, or a field with a
-- default.
CREATE FUNCTION postrider_internal.mapped_text(event jsonb, place text, mapped jsonb, target text, required boolean,
    least_bytes integer, most_bytes integer)
    RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    field text := mapped ->> 'sourceField';
    given text;
BEGIN
    IF field <> '' THEN
        given := postrider_internal.envelope_text(event, place, field, false, least_bytes, most_bytes, true);
    END IF;
    given := coalesce(given, mapped ->> 'defaultValue');
    IF given IS NULL AND required THEN
        PERFORM postrider_internal.refuse_event(place || '.' || field,
            format('is required: inputSchemaMapping takes %s from it', target));
    END IF;
    RETURN given;
END $$;

-- The publisher's own JSON. Source: Microsoft, Map custom fields to Event Grid schema, 2021-09-28.
CREATE FUNCTION postrider_internal.custom_envelope(e postrider_internal.envelope, event jsonb, place text, topic text,
    mapping jsonb, at timestamptz)
    RETURNS postrider_internal.envelope LANGUAGE plpgsql STABLE AS $$
DECLARE
    m jsonb := mapping -> 'properties';
    said text;
BEGIN
    e.event_id := CASE WHEN m ->> 'id' IS NULL THEN e.id::text ELSE postrider_internal.mapped_text(event, place,
        m -> 'id', 'id', true, 1, 1024) END;
    e.subject := coalesce(postrider_internal.mapped_text(event, place, m -> 'subject', 'subject', true, 0, 4096), '');
    e.event_type := postrider_internal.mapped_text(event, place, m -> 'eventType', 'eventType', true, 1, 1024);
    e.event_time := CASE WHEN m ->> 'eventTime' IS NULL THEN at ELSE
        postrider_internal.envelope_time(place || '.' || (m -> 'eventTime' ->> 'sourceField'),
            postrider_internal.mapped_text(event, place, m -> 'eventTime', 'eventTime', true, 1, 1024)) END;
    e.data_version := coalesce(postrider_internal.mapped_text(event, place, m -> 'dataVersion', 'dataVersion', false, 0,
        1024), '');
    e.source := '';
    said := postrider_internal.mapped_text(event, place, m -> 'topic', 'topic', false, 0, 1024);
    IF said <> '' AND said NOT IN (topic, '/topics/' || topic) THEN
        PERFORM postrider_internal.refuse_event(place || '.' || (m -> 'topic' ->> 'sourceField'),
            format('is the event''s topic: must be absent, empty, "%s" or "/topics/%s"', topic, topic));
    END IF;
    e.body := convert_to(event::text, 'UTF8');
    RETURN e;
END $$;

-- Takes the key of a publish for 24 hours, or answers the ids of the events that were published with it. A transaction
-- that is open and took the same key is waited for: only its end says which of the two it is. A repeat only reads, and
-- locks nothing.
CREATE FUNCTION postrider_internal.take_key(topic_id bigint, key text, ids uuid[], accepted_on date) RETURNS uuid[]
LANGUAGE plpgsql AS $$
DECLARE
    hash bytea := sha256(convert_to(key, 'UTF8'));
    taken uuid[];
BEGIN
    IF octet_length(key) NOT BETWEEN 1 AND 255 THEN
        PERFORM postrider_internal.refuse_event('idempotency_key', format('must be 1 to 255 bytes long, is %s',
            octet_length(key)));
    END IF;
    LOOP
        SELECT k.event_uuids INTO taken FROM postrider_internal.idempotency_keys k
         WHERE k.topic_id = take_key.topic_id AND k.key_hash = hash AND k.expires_at > clock_timestamp();
        IF FOUND THEN
            RETURN taken;
        END IF;
        INSERT INTO postrider_internal.idempotency_keys AS k (topic_id, key_hash, event_uuids, event_day, created_at,
            expires_at)
        VALUES (take_key.topic_id, hash, ids, accepted_on, clock_timestamp(), clock_timestamp() + interval '24 hours')
        ON CONFLICT ON CONSTRAINT idempotency_keys_pkey DO UPDATE SET event_uuids = excluded.event_uuids,
            event_day = excluded.event_day, created_at = excluded.created_at, expires_at = excluded.expires_at
         WHERE k.expires_at <= clock_timestamp();
        IF FOUND THEN
            RETURN NULL;
        END IF; -- else another transaction took it in between: the next round reads it
    END LOOP;
END $$;

-- take_events for events that accept_events has made, of one topic. An id that was made here is nobody else's, and
-- needs no key. A repeat of the idempotency key gets the same answer.
CREATE FUNCTION postrider_internal.take_accepted(topic_id bigint, minutes integer,
    accepted postrider_internal.envelope[], idempotency_key text) RETURNS uuid[] LANGUAGE plpgsql AS $$
DECLARE
    n integer := cardinality(accepted);
    keys uuid[];
    ids uuid[];
    firsts uuid[];
BEGIN
    SELECT array_agg(CASE WHEN a.event_id <> a.id::text THEN postrider_internal.event_key(a.source, a.event_id) END
        ORDER BY a.ordinality), array_agg(a.id ORDER BY a.ordinality)
      INTO keys, ids FROM unnest(accepted) WITH ORDINALITY a;
    firsts := postrider_internal.take_events(array_fill(take_accepted.topic_id, ARRAY [n]),
        array_fill(minutes, ARRAY [n]), keys, ids);
    IF idempotency_key IS NOT NULL AND firsts <> ids THEN
        UPDATE postrider_internal.idempotency_keys k SET event_uuids = firsts WHERE k.topic_id = take_accepted.topic_id
            AND k.key_hash = sha256(convert_to(idempotency_key, 'UTF8'));
    END IF;
    RETURN firsts;
END $$;

-- Stores events as part of the caller's transaction, and returns their ids in the events' order. Wakes the service
-- unless a node is looking anyway. A transaction that notifies holds a lock of the whole server over its commit, so
-- that publishers wait for one another's disk: with 16 of them, a third of the rate.
CREATE FUNCTION postrider_internal.accept_events(topic_name text, events jsonb, alone boolean, notify boolean,
    idempotency_key text) RETURNS uuid[] LANGUAGE plpgsql AS $$
DECLARE
    taken uuid[];
    firsts uuid[];
    t record;
    event jsonb;
    at timestamptz := clock_timestamp();
    accepted_on date := (at AT TIME ZONE 'UTC')::date;
    place text;
    n integer := 0;
    e postrider_internal.envelope;
    accepted postrider_internal.envelope[] := '{}';
    ids uuid[] := '{}';
BEGIN
    SELECT id, name, input_schema AS schema, input_schema_mapping AS mapping,
           duplicate_detection_window_in_minutes AS detection INTO t FROM postrider_internal.topics
    WHERE name = topic_name AND deleted_at IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = CASE WHEN topic_name IS NULL THEN 'topic is required'
            ELSE format('topic "%s" does not exist', topic_name) END,
            COLUMN = 'topic', HINT = 'SELECT topic FROM postrider.topics lists those there are.';
    END IF;
    FOR event IN SELECT * FROM jsonb_array_elements(events) LOOP
        place := CASE WHEN alone THEN 'event' ELSE format('events[%s]', n) END;
        n := n + 1;
        IF jsonb_typeof(event) <> 'object' THEN
            PERFORM postrider_internal.refuse_event(place, 'must be an object, is '
                || postrider_internal.kind_in_words(event));
        END IF;
        e := NULL;
        e.id := postrider_internal.new_uuid();
        e := CASE t.schema WHEN 'EventGridSchema' THEN postrider_internal.event_grid_envelope(e, event, place, t.name,
            at)
                           WHEN 'CloudEventSchemaV1_0' THEN postrider_internal.cloud_event_envelope(e, event, place)
                           ELSE postrider_internal.custom_envelope(e, event, place, t.name, t.mapping, at) END;
        IF octet_length(e.body) > 1048576 THEN
            PERFORM postrider_internal.refuse_event(place, format('an event has at most 1048576 bytes, this one has %s',
                octet_length(e.body)));
        ELSIF postrider_internal.nests_deeper(event::text, 256) THEN
            PERFORM postrider_internal.refuse_event(place, 'objects and arrays may nest 256 deep at most');
        END IF;
        accepted := accepted || e;
        ids := ids || e.id;
    END LOOP;
    IF n = 0 THEN
        RETURN ids;
    ELSIF to_regclass('postrider_internal.events_' || to_char(accepted_on, 'YYYYMMDD')) IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('there is no partition for events of %s',
            accepted_on),
            HINT = 'Start postrider serve: it makes them seven days ahead.';
    END IF;
    IF idempotency_key IS NOT NULL THEN
        taken := postrider_internal.take_key(t.id, idempotency_key, ids, accepted_on);
        IF taken IS NOT NULL THEN
            RETURN taken;
        END IF;
    END IF;
    IF t.detection IS NOT NULL THEN
        firsts := postrider_internal.take_accepted(t.id, t.detection, accepted, idempotency_key);
        accepted := ARRAY (SELECT accepted[i] FROM generate_subscripts(firsts, 1) i WHERE firsts[i] = ids[i]
            ORDER BY i);
        ids := ARRAY (SELECT ids[i] FROM generate_subscripts(firsts, 1) i WHERE firsts[i] = ids[i] ORDER BY i);
        IF cardinality(ids) = 0 THEN
            RETURN firsts;
        END IF;
    END IF;
    INSERT INTO postrider_internal.events (id, day, topic_id, published_at, event_time, event_id, event_type, subject,
        source, data_version, schema, traceparent, tracestate, body)
    SELECT a.id, accepted_on, t.id, at, a.event_time, a.event_id, a.event_type, a.subject, a.source, a.data_version,
           t.schema, a.traceparent, a.tracestate, a.body FROM unnest(accepted) a;
    INSERT INTO postrider_internal.sql_publishes (topic_id, event_day, event_uuids) VALUES (t.id, accepted_on, ids);
    IF notify IS NOT FALSE AND NOT EXISTS (SELECT FROM postrider_internal.sql_publish_watch
        WHERE watched_until > clock_timestamp()) THEN
        PERFORM pg_notify('postrider_internal.river_insert', '{"queue":"published"}');
    END IF;
    RETURN coalesce(firsts, ids);
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION postrider_internal.accept_events, postrider_internal.take_accepted, postrider_internal.take_key,
    postrider_internal.custom_envelope, postrider_internal.mapped_text, postrider_internal.cloud_event_envelope,
    postrider_internal.event_grid_envelope, postrider_internal.with_trace, postrider_internal.nests_deeper,
    postrider_internal.envelope_time, postrider_internal.envelope_text, postrider_internal.kind_in_words,
    postrider_internal.refuse_event;
DROP TYPE postrider_internal.envelope;
