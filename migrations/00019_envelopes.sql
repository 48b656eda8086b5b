-- +goose Up
-- Publishing in your own transaction. The events are stored with a row that nodes see when the caller commits. The
-- nodes create the deliveries then: nothing here reads or locks event subscriptions.

-- What the columns of an event are taken from.
CREATE TYPE postrider_internal.envelope AS (
    id uuid, event_time timestamptz, event_id text, event_type text, subject text, source text, data_version text,
    traceparent text, tracestate text, body bytea
);

-- How a member of an envelope is checked: its field, the fallback for a missing one, limits of its length in bytes, and
-- the allowed texts, NULL for all.
CREATE TYPE postrider_internal.envelope_rule AS (
    member text, field text, fallback text, required boolean, shortest integer, longest integer, allowed text[]
);

-- +goose StatementBegin
-- Rejects a publish: 22023 with a message such as "event.eventType is required", and the field as COLUMN for programs.
CREATE FUNCTION postrider_internal.reject_event(field text, problem text) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('%s %s', field, problem), COLUMN = field;
END $$;

CREATE FUNCTION postrider_internal.kind_in_words(value jsonb) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE jsonb_typeof(value) WHEN 'object' THEN 'an object' WHEN 'array' THEN 'an array' WHEN 'string'
    THEN 'a string' WHEN 'boolean' THEN 'a boolean'
            WHEN 'number' THEN 'a number' ELSE 'null' END;

-- The RFC 3339 form of a date and time of ISO 8601: with T, seconds and an offset, which is UTC without one. It returns
-- other texts as they are. Package event reads the same forms by the same expression.
CREATE FUNCTION postrider_internal.usual_time(given text) RETURNS text LANGUAGE plpgsql IMMUTABLE
    SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    parts text[] := regexp_match(given COLLATE "C",
        '^(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d:\d\d)(:\d\d(?:\.\d+)?)?(?: ?([Zz]|[+-]\d\d(?::?\d\d)?))?)?$');
BEGIN
    RETURN CASE WHEN parts IS NULL THEN given
        ELSE concat(parts[1], 'T', coalesce(parts[2], '00:00'), coalesce(parts[3], ':00'),
            CASE length(parts[4]) WHEN 3 THEN parts[4] || ':00'
                WHEN 5 THEN left(parts[4], 3) || ':' || right(parts[4], 2)
                ELSE coalesce(upper(parts[4]), 'Z') END) END;
END $$;

-- An RFC 3339 time, or with also_iso a date and time of ISO 8601. The calendar is checked here: catching the error of a
-- cast would cost a subtransaction per event.
CREATE FUNCTION postrider_internal.envelope_time(field text, given text, also_iso boolean DEFAULT false)
    RETURNS timestamptz LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
    SET standard_conforming_strings = on AS $$
DECLARE
    -- The form of the text, with seconds to 99.
    form CONSTANT text := '^(?!0000)\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])t([01]\d|2[0-3]):[0-5]\d:\d\d(\.\d+)?'
        '(z|[+-]([01]\d|2[0-3]):[0-5]\d)$';
    wrong boolean := given COLLATE "C" !~* form;
    moment timestamptz;
BEGIN
    IF given IS NULL THEN
        RETURN NULL;
    ELSIF wrong AND also_iso THEN
        given := postrider_internal.usual_time(given);
        wrong := given COLLATE "C" !~* form;
    END IF;
    IF wrong OR substr(given, 9, 2)::integer > extract(day
           FROM (substr(given, 1, 7) || '-01')::date + interval '1 month - 1 day') THEN
        PERFORM postrider_internal.reject_event(field, 'not an RFC 3339 time, such as 2026-11-28T03:00:00Z');
    ELSIF substr(given, 18, 2) > '59' THEN -- PostgreSQL and Go have no leap seconds
        PERFORM postrider_internal.reject_event(field, 'seconds must be 00 to 59');
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
        PERFORM postrider_internal.reject_event(field, 'not an RFC 3339 time, such as 2026-11-28T03:00:00Z');
    END IF;
    RETURN nullif(moment, '0001-01-01T00:00:00Z'); -- no time at all, as everywhere in the service
END $$;

-- How deep objects and arrays nest. Strings are taken out first, then pairs of brackets, innermost first.
CREATE FUNCTION postrider_internal.nests_deeper(body text, most integer) RETURNS boolean LANGUAGE plpgsql
    IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
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

-- Distributed traces: a malformed value is ignored (W3C, Trace Context, 2021-11-23, section 2.2.2).
CREATE FUNCTION postrider_internal.with_trace(e postrider_internal.envelope, event jsonb)
RETURNS postrider_internal.envelope LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
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

-- The members of an envelope that are checked; the first five become columns. A custom event has the members of the
-- Event Grid schema, in the fields that its topic's mapping names, with defaults. A relay topic accepts events that
-- name another topic.
-- Sources: Microsoft, Azure Event Grid event schema, 2023-05-24, and Map custom fields to Event Grid schema,
-- 2021-09-28; CNCF, CloudEvents 1.0.2.
CREATE FUNCTION postrider_internal.envelope_rules(topic text, schema text, mapping jsonb, relay text)
    RETURNS postrider_internal.envelope_rule[] LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- member, field, fallback, required, shortest, longest, allowed; a literal is read once in a session
    rules postrider_internal.envelope_rule[] := CASE schema WHEN 'CloudEventSchemaV1_0' THEN '{
        "(id,id,,t,1,1024,)",
        "(type,type,,t,1,1024,)",
        "(subject,subject,,f,1,4096,)",
        "(time,time,,f,1,1024,)",
        "(source,source,,t,1,1024,)",
        "(specversion,specversion,,t,1,1024,{1.0})",
        "(datacontenttype,datacontenttype,,f,1,1024,)",
        "(dataschema,dataschema,,f,1,4096,)"
    }'::postrider_internal.envelope_rule[] ELSE '{
        "(id,id,,t,1,1024,)",
        "(eventType,eventType,,t,1,1024,)",
        "(subject,subject,,t,0,4096,)",
        "(eventTime,eventTime,,t,1,1024,)",
        "(dataVersion,dataVersion,,f,0,1024,)",
        "(topic,topic,,f,0,1024,)",
        "(metadataVersion,metadataVersion,,f,0,1024,{1})"
    }' END;
    mapped jsonb;
BEGIN
    IF schema <> 'CloudEventSchemaV1_0' AND relay = 'none' THEN
        rules[6].allowed := ARRAY ['', topic, '/topics/' || topic];
    END IF;
    IF mapping IS NOT NULL THEN
        rules := rules[:6];
        FOR i IN 1 .. 6 LOOP
            mapped := mapping -> 'properties' -> rules[i].member;
            rules[i].field := nullif(mapped ->> 'sourceField', '');
            rules[i].fallback := mapped ->> 'defaultValue';
            rules[i].required := rules[i].required AND rules[i].field IS NOT NULL AND rules[i].fallback IS NULL;
        END LOOP;
    END IF;
    RETURN rules;
END $$;

-- Checks the data of a CloudEvent, and the names and kinds of its extension attributes.
-- Source: CNCF, CloudEvents 1.0.2 and its JSON event format; the length of a name is Event Grid's.
CREATE FUNCTION postrider_internal.check_cloud_event(event jsonb, place text) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    encoded jsonb := nullif(event -> 'data_base64', 'null');
    name text;
    value jsonb;
BEGIN
    IF encoded IS NOT NULL AND (event ? 'data' OR jsonb_typeof(encoded) <> 'string'
        OR encoded #>> '{}' !~ '^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$') THEN
        PERFORM postrider_internal.reject_event(place || '.data_base64', CASE
            WHEN event ? 'data' THEN 'must be absent if there is data'
            WHEN jsonb_typeof(encoded) <> 'string' THEN 'must be a string, is '
                || postrider_internal.kind_in_words(encoded)
            ELSE 'must be base64 with padding' END);
    END IF;
    FOR name, value IN SELECT * FROM jsonb_each(event -
        '{specversion,id,source,type,subject,time,datacontenttype,dataschema,data,data_base64}'::text[]) LOOP
        IF name !~ '^[a-z0-9]{1,20}$' THEN
            PERFORM postrider_internal.reject_event(place || '.' || name,
                'an extension attribute''s name must be 1 to 20 characters of a-z and 0-9');
        ELSIF jsonb_typeof(value) IN ('object', 'array') THEN
            PERFORM postrider_internal.reject_event(place || '.' || name,
                'an extension attribute must be a string, a number or a boolean, is '
                    || postrider_internal.kind_in_words(value));
        END IF;
    END LOOP;
END $$;

-- The usual form of an event in the Event Grid schema: the schema's spelling of its members, whose letter case does not
-- matter, and texts for their numbers. Two spellings of one name are rejected.
CREATE FUNCTION postrider_internal.usual_form(event jsonb, place text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    usual text;
    given text[];
    value jsonb;
BEGIN
    FOREACH usual IN ARRAY '{id,subject,eventType,eventTime,data,dataVersion,topic,metadataVersion}'::text[] LOOP
        given := ARRAY (SELECT name FROM jsonb_object_keys(event) AS keys(name)
            WHERE lower(name COLLATE "C") = lower(usual COLLATE "C"));
        value := event -> given[1];
        IF cardinality(given) > 1 THEN
            PERFORM postrider_internal.reject_event(place || '.' || given[1],
                format('is the same member as "%s": send one of them', given[2]));
        ELSIF jsonb_typeof(value) = 'number' AND usual <> 'data' THEN
            event := event - given[1] || jsonb_build_object(usual, value #>> '{}');
        ELSIF given[1] <> usual THEN
            event := event - given[1] || jsonb_build_object(usual, value);
        END IF;
    END LOOP;
    RETURN event;
END $$;

-- Reads the texts of an envelope by the rules; NULL = no such text. A field is a path, as the key of a filter. Lengths
-- are bytes. Line breaks are rejected: such a text may become a header. The digits of a number count as a text, too,
-- except in CloudEvents.
CREATE FUNCTION postrider_internal.envelope_texts(event jsonb, place text, rules postrider_internal.envelope_rule[],
    schema text) RETURNS text[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    also_numbers CONSTANT boolean := schema <> 'CloudEventSchemaV1_0';
    texts text[] := '{}';
    r postrider_internal.envelope_rule;
    value jsonb;
    name text;
    given text;
    kind text;
    problem text;
BEGIN
    FOREACH r IN ARRAY rules LOOP
        value := CASE WHEN r.field IS NOT NULL THEN event END;
        FOREACH name IN ARRAY string_to_array(coalesce(r.field, ''), '.') LOOP
            value := value -> name; -- unlike #>, it does not read an array's elements
        END LOOP;
        given := value #>> '{}';
        kind := jsonb_typeof(value);
        problem := CASE
            WHEN given IS NULL THEN CASE WHEN r.required THEN 'is required' || CASE schema WHEN 'CustomEventSchema'
                THEN format(': inputSchemaMapping reads %s from it', r.member) ELSE '' END END
            WHEN kind <> 'string' AND NOT (also_numbers AND kind = 'number') THEN format('must be a string%s, is %s',
                CASE WHEN also_numbers THEN ' or a number' END, postrider_internal.kind_in_words(value))
            WHEN octet_length(given) NOT BETWEEN r.shortest AND r.longest
                THEN format('must be %s to %s bytes long, is %s', r.shortest, r.longest, octet_length(given))
            WHEN strpos(given, E'\n') > 0 OR strpos(given, E'\r') > 0 THEN 'must not contain a line break'
            WHEN given <> ALL (r.allowed) THEN format('must be "%s"', array_to_string(r.allowed, '" or "')) END;
        IF problem IS NOT NULL THEN
            PERFORM postrider_internal.reject_event(place || '.' || r.field, problem);
        END IF;
        texts := texts || coalesce(given, r.fallback);
    END LOOP;
    RETURN texts;
END $$;

-- Reads and checks one event of a topic. A missing id, eventTime and specversion is filled in. The name of another
-- topic is kept as the event's source.
CREATE FUNCTION postrider_internal.read_event(topic text, event jsonb, place text,
    rules postrider_internal.envelope_rule[], schema text, at timestamptz, relay text)
    RETURNS postrider_internal.envelope LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    e postrider_internal.envelope;
    most CONSTANT integer := CASE relay WHEN 'none' THEN 1048576 ELSE 2097152 END;
    cloud boolean := schema = 'CloudEventSchemaV1_0';
    texts text[];
BEGIN
    e.id := postrider_internal.new_uuid();
    IF schema = 'CustomEventSchema' AND event = 'null' THEN
        PERFORM postrider_internal.reject_event(place, 'must not be null');
    ELSIF schema <> 'CustomEventSchema' AND jsonb_typeof(event) <> 'object' THEN
        PERFORM postrider_internal.reject_event(place, 'must be an object, is '
            || postrider_internal.kind_in_words(event));
    ELSIF schema = 'EventGridSchema'
        AND (event - '{id,subject,eventType,eventTime,data,dataVersion,topic,metadataVersion}'::text[] <> '{}'
            OR event @? 'strict $.* ? (@.type() == "number")') THEN
        event := postrider_internal.usual_form(event, place);
    END IF;
    IF schema <> 'CustomEventSchema' AND event ->> 'id' IS NULL THEN
        event := event || jsonb_build_object('id', e.id);
    END IF;
    IF schema = 'EventGridSchema' AND event ->> 'eventTime' IS NULL THEN
        event := event || jsonb_build_object('eventTime', to_char(at AT TIME ZONE 'UTC',
            'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'));
    ELSIF cloud AND event ->> 'specversion' IS NULL THEN
        event := event || '{"specversion": "1.0"}';
    END IF;
    texts := postrider_internal.envelope_texts(event, place, rules, schema);
    e.event_id := coalesce(texts[1], e.id::text);
    e.event_type := texts[2];
    e.subject := coalesce(texts[3], '');
    e.event_time := CASE WHEN texts[4] IS NOT NULL THEN postrider_internal.envelope_time(place || '.'
        || rules[4].field, texts[4], NOT cloud) WHEN NOT cloud THEN at END;
    e.data_version := CASE WHEN cloud THEN '' ELSE coalesce(texts[5], '') END;
    e.source := CASE WHEN cloud THEN texts[5] WHEN texts[6] IN (topic, '/topics/' || topic) THEN ''
        ELSE coalesce(texts[6], '') END;
    IF cloud THEN
        PERFORM postrider_internal.check_cloud_event(event, place);
        e := postrider_internal.with_trace(e, event);
    END IF;
    e.body := convert_to(event::text, 'UTF8');
    IF octet_length(e.body) > most THEN
        PERFORM postrider_internal.reject_event(place, format('an event has at most %s bytes, this one has %s',
            most, octet_length(e.body)));
    ELSIF postrider_internal.nests_deeper(event::text, 256) THEN
        PERFORM postrider_internal.reject_event(place, 'objects and arrays may nest 256 deep at most');
    END IF;
    RETURN e;
END $$;

-- Takes the key of a publish for 24 hours, or returns the ids of the events that were published with it. If another
-- open transaction took the same key, it waits for its end. A repeat only reads and locks nothing.
CREATE FUNCTION postrider_internal.take_key(topic_id bigint, key text, ids uuid[]) RETURNS uuid[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    hash bytea := sha256(convert_to(key, 'UTF8'));
    taken uuid[];
BEGIN
    IF octet_length(key) NOT BETWEEN 1 AND 255 THEN
        PERFORM postrider_internal.reject_event('idempotency_key', format('must be 1 to 255 bytes long, is %s',
            octet_length(key)));
    END IF;
    LOOP
        SELECT k.event_uuids INTO taken FROM postrider_internal.idempotency_keys k
         WHERE k.topic_id = take_key.topic_id AND k.key_hash = hash AND k.expires_at > clock_timestamp();
        IF FOUND THEN
            RETURN taken;
        END IF;
        INSERT INTO postrider_internal.idempotency_keys AS k (topic_id, key_hash, event_uuids, expires_at)
        VALUES (take_key.topic_id, hash, ids, clock_timestamp() + interval '24 hours')
        ON CONFLICT ON CONSTRAINT idempotency_keys_pkey
        DO UPDATE SET event_uuids = excluded.event_uuids, expires_at = excluded.expires_at
         WHERE k.expires_at <= clock_timestamp();
        IF FOUND THEN
            RETURN NULL;
        END IF; -- else another transaction took it in between: the next round reads it
    END LOOP;
END $$;

-- take_events for events that accept_events has created, of one topic. An id that was generated here is unique and
-- needs no key. A repeat of the idempotency key returns the same ids.
CREATE FUNCTION postrider_internal.take_accepted(topic_id bigint, minutes integer,
    accepted postrider_internal.envelope[], idempotency_key text) RETURNS uuid[] LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
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

-- Stores events as part of the caller's transaction and returns their ids in the events' order. It does not notify: a
-- transaction that does holds a server-wide lock while it commits, so publishers wait for one another's disk. With 16
-- of them, that is a third of the rate. Nodes poll.
CREATE FUNCTION postrider_internal.accept_events(topic_name text, events jsonb, alone boolean, idempotency_key text)
RETURNS uuid[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    taken uuid[];
    firsts uuid[];
    t record;
    event jsonb;
    at timestamptz := clock_timestamp();
    accepted_on date := (at AT TIME ZONE 'UTC')::date;
    rules postrider_internal.envelope_rule[];
    n integer := 0;
    e postrider_internal.envelope;
    accepted postrider_internal.envelope[] := '{}';
    ids uuid[] := '{}';
BEGIN
    SELECT id, name, input_schema AS schema, input_schema_mapping AS mapping, relay,
           duplicate_detection_window_in_minutes AS detection INTO t FROM postrider_internal.topics
    WHERE name = topic_name AND deleted_at IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = CASE WHEN topic_name IS NULL THEN 'topic is required'
            ELSE format('topic "%s" does not exist', topic_name) END,
            COLUMN = 'topic', HINT = 'SELECT topic FROM postrider.topics lists those there are.';
    END IF;
    rules := postrider_internal.envelope_rules(t.name, t.schema, t.mapping, t.relay);
    FOR event IN SELECT * FROM jsonb_array_elements(events) LOOP
        e := postrider_internal.read_event(t.name, event, CASE WHEN alone THEN 'event' ELSE format('events[%s]', n) END,
            rules, t.schema, at, t.relay);
        n := n + 1;
        accepted := accepted || e;
        ids := ids || e.id;
    END LOOP;
    IF n = 0 THEN
        RETURN ids;
    ELSIF to_regclass('postrider_internal.events_' || to_char(accepted_on, 'YYYYMMDD')) IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('there is no partition for events of %s',
            accepted_on),
            HINT = 'Start postrider serve: it creates them seven days ahead.';
    END IF;
    IF idempotency_key IS NOT NULL THEN
        taken := postrider_internal.take_key(t.id, idempotency_key, ids);
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
    RETURN coalesce(firsts, ids);
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION postrider_internal.accept_events, postrider_internal.take_accepted, postrider_internal.take_key,
    postrider_internal.read_event, postrider_internal.envelope_texts, postrider_internal.usual_form,
    postrider_internal.check_cloud_event, postrider_internal.envelope_rules, postrider_internal.with_trace,
    postrider_internal.nests_deeper, postrider_internal.envelope_time, postrider_internal.usual_time,
    postrider_internal.kind_in_words, postrider_internal.reject_event;
DROP TYPE postrider_internal.envelope, postrider_internal.envelope_rule;
