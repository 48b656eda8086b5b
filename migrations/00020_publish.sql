-- +goose Up
-- The functions that publishers call.

-- +goose StatementBegin
-- Only postrider itself publishes to its own topic: its events must be trustworthy.
CREATE FUNCTION postrider_internal.reject_own_topic(topic text) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF topic = 'postrider.system' THEN
        RAISE EXCEPTION USING ERRCODE = '22023',
            MESSAGE = 'topic "postrider.system" is postrider''s own: it is subscribed to, and not published to',
            COLUMN = 'topic',
            HINT = 'SELECT topic FROM postrider.topics lists those there are.';
    END IF;
END $$;

-- The fast path for one event in the Event Grid schema, or one CloudEvent without extensions. It is one statement:
-- PL/pgSQL prepares every expression anew in each transaction, and the hundred of accept_events take twice as long. It
-- returns NULL for anything else, invalid events included; the caller then uses accept_events. It accepts nothing that
-- accept_events rejects, and stores the same.
CREATE FUNCTION postrider_internal.accept_plain_event(topic_name text, event jsonb) RETURNS uuid
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    accepted uuid;
BEGIN
    WITH given AS MATERIALIZED (
        SELECT t.id AS topic_id, t.input_schema, t.input_schema = 'EventGridSchema' AS grid, moment.at,
               own.id AS own_id,
               CASE t.input_schema WHEN 'EventGridSchema' THEN jsonb_build_object('id', own.id, 'eventTime',
                   to_char(moment.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
                                   ELSE jsonb_build_object('id', own.id, 'specversion', '1.0') END || event AS value
          FROM postrider_internal.topics t, (SELECT clock_timestamp() AS at OFFSET 0) moment,
              (SELECT postrider_internal.new_uuid() AS id OFFSET 0) own
         WHERE t.name = topic_name AND t.name <> 'postrider.system' AND t.deleted_at IS NULL
           AND t.input_schema <> 'CustomEventSchema' AND jsonb_typeof(event) = 'object'
           AND (t.duplicate_detection_window_in_minutes IS NULL OR event ->> 'id' IS NULL)
    ), read AS MATERIALIZED (
        SELECT topic_id, input_schema, grid, at, (at AT TIME ZONE 'UTC')::date AS day, own_id, value::text AS body,
               value ->> 'id' AS id, coalesce(value ->> 'subject', '') AS subject,
               CASE WHEN grid THEN value ->> 'eventType' ELSE value ->> 'type' END AS type, CASE WHEN grid
                   THEN value ->> 'eventTime' ELSE value ->> 'time' END AS time,
               CASE WHEN grid THEN coalesce(value ->> 'dataVersion', '') ELSE '' END AS data_version, CASE WHEN grid
                   THEN '' ELSE value ->> 'source' END AS source
          FROM given
         WHERE jsonb_typeof(value -> 'id') = 'string'
           AND CASE WHEN grid THEN jsonb_typeof(value -> 'subject') = 'string'
               AND jsonb_typeof(value -> 'eventType') = 'string' AND jsonb_typeof(value -> 'eventTime') = 'string'
                              AND coalesce(jsonb_typeof(value -> 'dataVersion'), 'string') = 'string'
                                  AND value - '{id,subject,eventType,eventTime,data,dataVersion}'::text[] = '{}'
                    ELSE jsonb_typeof(value -> 'source') = 'string' AND jsonb_typeof(value -> 'type') = 'string'
                        AND coalesce(value ->> 'subject', '?') <> ''
                              AND coalesce(jsonb_typeof(value -> 'subject'), 'string') = 'string'
                                  AND coalesce(jsonb_typeof(value -> 'time'), 'string') = 'string'
                              AND value -> 'specversion' = '"1.0"' AND coalesce(value -> 'datacontenttype',
                                  '"application/json"') = '"application/json"'
                              AND value - '{specversion,id,source,type,subject,time,datacontenttype,data}'::text[]
                                  = '{}' END
    ), stored AS (
        INSERT INTO postrider_internal.events (id, day, topic_id, published_at, event_time, event_id, event_type,
            subject, source, data_version, schema, body)
        SELECT own_id, day, topic_id, at, time::timestamptz, id, type, subject, source, data_version, input_schema,
               convert_to(body, 'UTF8')
          FROM read
         WHERE octet_length(id) BETWEEN 1 AND 1024 AND octet_length(type) BETWEEN 1 AND 1024
           AND octet_length(subject) <= 4096 AND octet_length(data_version) <= 1024
           AND octet_length(source) <= 1024 AND (grid OR source <> '')
               AND strpos(replace(concat(id, type, subject, source, data_version), E'\r', E'\n'), E'\n') = 0
           AND (time IS NULL
               OR time COLLATE "C" ~ '^[12]\d{3}-((0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])|(0[13-9]|1[0-2])-(29|30)|'
               '(0[13578]|1[02])-31)T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?Z$')
           AND octet_length(body) <= 1048576 AND octet_length(body) - octet_length(replace(replace(body, '{', ''), '[',
               '')) <= 256
           AND to_regclass('postrider_internal.events_' || to_char(day, 'YYYYMMDD')) IS NOT NULL
        RETURNING id, day, topic_id
    ), waiting AS (
        INSERT INTO postrider_internal.sql_publishes (topic_id, event_day, event_uuids) SELECT topic_id, day, ARRAY [id]
        FROM stored
    )
    SELECT stored.id INTO accepted FROM stored;
    RETURN accepted;
END $$;

CREATE FUNCTION postrider_internal.accept_event(topic text, event jsonb, idempotency_key text)
RETURNS uuid LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    accepted uuid;
BEGIN
    IF idempotency_key IS NULL THEN
        accepted := postrider_internal.accept_plain_event(topic, event);
    END IF;
    IF accepted IS NULL THEN
        PERFORM postrider_internal.reject_own_topic(topic);
        accepted := (postrider_internal.accept_events(topic, jsonb_build_array(event), true,
            idempotency_key))[1];
    END IF;
    RETURN accepted;
END $$;

CREATE FUNCTION postrider.publish(topic text, event jsonb, idempotency_key text DEFAULT NULL) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF event IS NULL THEN
        PERFORM postrider_internal.reject_event('event', 'is required');
    END IF;
    RETURN postrider_internal.accept_event(topic, event, idempotency_key);
END $$;

CREATE FUNCTION postrider.publish_batch(topic text, events jsonb, idempotency_key text DEFAULT NULL) RETURNS uuid[]
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM postrider_internal.reject_own_topic(publish_batch.topic);
    IF events IS NULL THEN
        PERFORM postrider_internal.reject_event('events', 'is required');
    ELSIF jsonb_typeof(events) <> 'array' THEN
        PERFORM postrider_internal.reject_event('events', 'must be an array, is '
            || postrider_internal.kind_in_words(events));
    ELSIF jsonb_array_length(events) > 5000 THEN
        PERFORM postrider_internal.reject_event('events', format('holds at most 5000 events, this one has %s',
            jsonb_array_length(events)));
    END IF;
    RETURN postrider_internal.accept_events(topic, events, false, idempotency_key);
END $$;

-- An event in the schema of its topic.
CREATE FUNCTION postrider.publish_data(topic text, event_type text, subject text, data jsonb, source text DEFAULT NULL,
    idempotency_key text DEFAULT NULL) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    schema text;
    event jsonb := jsonb_build_object('eventType', event_type, 'subject', subject, 'data', data);
BEGIN
    SELECT t.input_schema INTO schema FROM postrider_internal.topics t WHERE t.name = publish_data.topic
        AND t.deleted_at IS NULL;
    IF schema = 'CloudEventSchemaV1_0' THEN
        event := jsonb_strip_nulls(jsonb_build_object('source', coalesce(source, '/topics/' || publish_data.topic),
            'type', event_type, 'subject', nullif(subject, ''),
            'time', to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')))
                || jsonb_build_object('data', data);
    END IF;
    RETURN postrider_internal.accept_event(publish_data.topic, event, idempotency_key);
END $$;

-- A change of a row as an event. It runs with the rights of the role that changes the row: to_jsonb calls the casts of
-- the user's own types. So it calls nothing of postrider_internal.
--
-- Rows are compared byte by byte: not every type has an equality operator, and equal values may differ (1.0 and 1.00).
--
-- The formats of values are those of no session, so that an event does not depend on who changes the row.
CREATE FUNCTION postrider.publish_row_change() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog,
    pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, MDY' SET intervalstyle = postgres SET bytea_output = hex
    SET extra_float_digits = 1 SET standard_conforming_strings = on AS $$
DECLARE
    origin oid := TG_RELID;
    schema_name text := TG_TABLE_SCHEMA;
    table_name text := TG_TABLE_NAME;
    keys text[];
    hidden text[];
    missing text;
    new_row jsonb;
    old_row jsonb;
    row_of jsonb;
    convertible boolean := true;
    query text;
    type text;
    subject text;
    data jsonb;
    printed text;
    part text;
    omitted text[] := '{}';
BEGIN
    IF TG_NARGS NOT BETWEEN 1 AND 4 THEN
        RAISE EXCEPTION USING ERRCODE = '22023',
            MESSAGE = 'publish_row_change takes a topic, and if you like a prefix of event types, the columns of '
            'the subject, and the columns to leave out',
            HINT = 'CREATE TRIGGER orders_events AFTER INSERT OR UPDATE OR DELETE ON orders FOR EACH ROW EXECUTE '
                'FUNCTION postrider.publish_row_change(''orders'', ''Shop.Order'', ''id'')';
    ELSIF TG_LEVEL <> 'ROW' OR TG_WHEN <> 'AFTER' THEN
        RAISE EXCEPTION USING ERRCODE = '22023',
            MESSAGE = 'publish_row_change belongs to a trigger AFTER the change, FOR EACH ROW';
    ELSIF TG_OP = 'UPDATE' AND OLD *= NEW THEN
        RETURN NULL;
    END IF;
    -- Each partition has a copy of the trigger. The event names the table that the trigger was created on.
    IF (SELECT c.relispartition FROM pg_class c WHERE c.oid = TG_RELID) THEN
        WITH RECURSIVE copies AS (
            SELECT t.tgrelid, t.tgparentid FROM pg_trigger t WHERE t.tgrelid = TG_RELID AND t.tgname = TG_NAME
             UNION ALL
            SELECT t.tgrelid, t.tgparentid FROM copies JOIN pg_trigger t ON t.oid = copies.tgparentid
        )
        SELECT c.oid, n.nspname, c.relname INTO STRICT origin, schema_name, table_name
          FROM copies JOIN pg_class c ON c.oid = copies.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE copies.tgparentid = 0;
    END IF;
    IF TG_NARGS > 2 THEN -- a name that contains a comma is quoted as in SQL
        SELECT array_agg(name ORDER BY place) FILTER (WHERE argument = 3),
               array_agg(name ORDER BY place) FILTER (WHERE argument = 4) INTO keys, hidden
          FROM (SELECT argument, place, CASE WHEN given ~ '^"([^"]|"")+"$'
                       THEN replace(substr(given, 2, length(given) - 2), '""', '"') ELSE given END AS name
                  FROM (VALUES (3, TG_ARGV[2]), (4, TG_ARGV[3])) a(argument, list)
                 CROSS JOIN regexp_matches(list, '(\s*"(?:[^"]|"")+"\s*|[^,]*)(?:,|$)', 'g')
                       WITH ORDINALITY m(groups, place)
                 CROSS JOIN btrim(groups[1], E' \t\r\n') given) names
         WHERE name <> '';
    END IF;
    IF keys IS NULL THEN
        SELECT array_agg(a.attname::text ORDER BY k.place) INTO keys
          FROM pg_index i CROSS JOIN unnest(i.indkey::smallint[]) WITH ORDINALITY AS k(number, place)
          JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
         WHERE i.indrelid = origin AND i.indisprimary AND k.place <= i.indnkeyatts;
    END IF;
    BEGIN
        new_row := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END;
        old_row := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END;
        row_of := coalesce(new_row, old_row);
        SELECT k INTO missing FROM unnest(keys || hidden) k WHERE NOT row_of ? k LIMIT 1;
    EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
        -- jsonb cannot hold some values: \u0000 in a column of type json, or a text of 256 MB.
        convertible := false;
        SELECT concat('SELECT jsonb_build_object(', string_agg(format('%L, ($1).%I', k, k), ', '), ')') INTO query
          FROM unnest(keys) k;
        IF TG_OP = 'DELETE' THEN
            EXECUTE query INTO row_of USING OLD;
        ELSE
            EXECUTE query INTO row_of USING NEW;
        END IF;
        new_row := CASE WHEN TG_OP <> 'DELETE' THEN row_of END;
        old_row := CASE WHEN TG_OP <> 'INSERT' THEN row_of END;
    END;
    IF missing IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023',
            MESSAGE = format('column "%s", which the trigger''s arguments name, does not exist in %s.%s', missing,
            schema_name, table_name),
            HINT = 'Separate names by commas. Quote a name that contains one, as in SQL.';
    END IF;
    type := coalesce(nullif(TG_ARGV[1], ''), schema_name || '.' || table_name) || '.' ||
        CASE TG_OP WHEN 'INSERT' THEN 'Inserted' WHEN 'UPDATE' THEN 'Updated' ELSE 'Deleted' END;
    subject := left(concat_ws('/', schema_name, table_name, (SELECT string_agg(coalesce(row_of ->> k, 'null'),
        '/' ORDER BY place) FROM unnest(keys) WITH ORDINALITY AS u(k, place))), 1024);
    data := jsonb_build_object('operation', TG_OP, 'schema', schema_name, 'table', table_name,
        'new', new_row - coalesce(hidden, '{}'), 'old', old_row - coalesce(hidden, '{}'));
    -- An event has at most 1 MiB and nests 256 deep. A row beyond that must not fail the transaction that changes it.
    FOREACH part IN ARRAY '{old,new}'::text[] LOOP
        printed := data::text;
        EXIT WHEN convertible AND octet_length(printed) <= 1000000
              AND (octet_length(printed) - octet_length(replace(replace(printed, '{', ''), '[', '')) <= 250
                   OR NOT data @? '$.**{255 to last}');
        IF jsonb_typeof(data -> part) <> 'null' THEN
            data := data || jsonb_build_object(part, NULL);
            omitted := omitted || part;
        END IF;
    END LOOP;
    IF omitted <> '{}' THEN
        data := data || jsonb_build_object('omitted', omitted);
    END IF;
    PERFORM postrider.publish_data(TG_ARGV[0], translate(type, E'\r\n', '  '), translate(subject, E'\r\n', '  '), data,
        source => translate(format('/%s/%s', schema_name, table_name), E'\r\n', '  '));
    RETURN NULL;
END $$;
-- +goose StatementEnd

REVOKE EXECUTE ON FUNCTION postrider.publish(text, jsonb, text), postrider.publish_batch(text, jsonb, text),
    postrider.publish_data(text, text, text, jsonb, text, text), postrider.publish_row_change() FROM PUBLIC;
COMMENT ON FUNCTION postrider.publish(text, jsonb, text) IS
    'Publishes one event, in the input schema of its topic, as part of the calling transaction. After a rollback, the '
    'event was never published. Returns the event''s system_id. A missing id, eventTime or specversion is filled in. '
    'The service finds the event within 20 ms while others publish by SQL, otherwise within 250 ms. idempotency_key: '
    'repeating a key of the last 24 hours for the same topic publishes nothing and returns the same id.';
COMMENT ON FUNCTION postrider.publish_batch(text, jsonb, text) IS
    'Publishes an array of up to 5,000 events, all or none, as postrider.publish() does. Returns their ids in the '
    'same order.';
COMMENT ON FUNCTION postrider.publish_data(text, text, text, jsonb, text, text) IS
    'Publishes one event with these values, in the schema of its topic, as postrider.publish() does. source is for '
    'CloudEvents only.';
COMMENT ON FUNCTION postrider.publish_row_change() IS
    'Trigger function AFTER INSERT, UPDATE or DELETE, FOR EACH ROW: publishes the change. Arguments: topic; prefix of '
    'the event types (default schema.table), followed by Inserted, Updated or Deleted; columns of the subject, '
    'separated by commas (default: the primary key); columns to leave out of the event. A name that contains a comma '
    'is quoted as in SQL. The table is the one that the trigger was created on, not its partition. An update that '
    'changes nothing publishes nothing. Times are in UTC. If data exceeds 1,000,000 bytes, data.old is left out, '
    'then data.new; data.omitted lists them. The function runs with the rights of the user who changes the row; that '
    'user needs postrider_publisher.';

-- +goose Down
DROP FUNCTION postrider.publish_data, postrider.publish_batch, postrider.publish, postrider_internal.accept_event,
    postrider_internal.accept_plain_event, postrider_internal.reject_own_topic, postrider.publish_row_change;
