-- +goose Up
-- A test delivery: a sample event for one event subscription only, whatever its filter. It is a delivery like any
-- other: attempted, retried, counted and dead-lettered by the same rules, so that its result is that of a real event.

-- +goose StatementBegin
-- Writes the members of an envelope to the paths that a custom topic's mapping names, and creates the objects on them.
CREATE FUNCTION postrider_internal.with_mapped(object jsonb, mapping jsonb, members jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    member text;
    path text[];
BEGIN
    FOR member, path IN SELECT key, string_to_array(value ->> 'sourceField', '.')
        FROM jsonb_each(mapping -> 'properties') WHERE value ->> 'sourceField' <> '' LOOP
        FOR depth IN 1 .. cardinality(path) - 1 LOOP
            IF jsonb_typeof(object #> path[:depth]) IS DISTINCT FROM 'object' THEN
                object := jsonb_set(object, path[:depth], '{}');
            END IF;
        END LOOP;
        object := jsonb_set(object, path, members -> member);
    END LOOP;
    RETURN object;
END $$;

-- The sample, in the input schema of the topic. A custom topic's is written into the fields that its mapping names.
CREATE FUNCTION postrider_internal.test_event(topic text, schema text, mapping jsonb, id uuid, subject text, data jsonb,
    at timestamptz) RETURNS jsonb LANGUAGE sql STABLE
RETURN CASE schema
       WHEN 'EventGridSchema' THEN jsonb_build_object('id', id, 'eventType', 'postrider.TestEvent', 'subject', subject,
           'eventTime', postrider_internal.json_time(at), 'dataVersion', '1', 'data', data)
       WHEN 'CloudEventSchemaV1_0' THEN jsonb_build_object('specversion', '1.0', 'id', id, 'type',
           'postrider.TestEvent', 'source', '/topics/' || topic, 'subject', subject,
           'time', postrider_internal.json_time(at), 'datacontenttype', 'application/json', 'data', data)
       ELSE postrider_internal.with_mapped(data, mapping, jsonb_build_object('id', id,
           'eventType', 'postrider.TestEvent', 'subject', subject, 'eventTime', postrider_internal.json_time(at),
           'topic', topic, 'dataVersion', '1'))
       END;

-- The event subscription is locked against a deletion that would not see the delivery. The delivery is created on hold,
-- as every redelivery is.
CREATE FUNCTION postrider_internal.test_delivery(topic text, subscription text, actor text, address text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    target bigint;
    t record;
    event uuid := postrider_internal.new_uuid();
    today date := postrider_internal.day_of_publishing();
    at timestamptz := clock_timestamp();
    subject text;
    body bytea;
    delivery bigint;
BEGIN
    target := postrider_internal.find_subscription(topic, subscription);
    PERFORM postrider_internal.redelivery_target(topic, subscription); -- one that has expired is rejected
    PERFORM postrider_internal.commit_soon();
    SELECT tp.id, tp.name, tp.input_schema, tp.input_schema_mapping INTO t
      FROM postrider_internal.event_subscriptions s JOIN postrider_internal.topics tp ON tp.id = s.topic_id
      WHERE s.id = target AND s.deleted_at IS NULL FOR SHARE OF s;
    IF NOT FOUND THEN -- deleted since it was looked for
        PERFORM postrider_internal.find_subscription(topic, subscription);
    END IF;
    subject := 'postrider/test/' || subscription;
    body := convert_to(postrider_internal.test_event(t.name, t.input_schema, t.input_schema_mapping, event, subject,
        jsonb_build_object('test', true, 'message',
            'This event was created by postrider to try out one event subscription.', 'subscription', subscription),
        at)::text, 'UTF8');
    INSERT INTO postrider_internal.events (id, day, topic_id, published_at, event_time, matched, event_id, event_type,
        subject, source, data_version, schema, body)
    VALUES (event, today, t.id, at, at, 1, event::text, 'postrider.TestEvent', subject, CASE t.input_schema
        WHEN 'CloudEventSchemaV1_0' THEN '/topics/' || t.name ELSE '' END,
            CASE t.input_schema WHEN 'CloudEventSchemaV1_0' THEN '' ELSE '1' END, t.input_schema, body);
    INSERT INTO postrider_internal.deliveries (subscription_id, topic_id, event_uuid, event_day, event_bytes, hold,
        time_to_live_since, next_attempt_at)
    VALUES (target, t.id, event, today, postrider_internal.event_bytes(t.input_schema, octet_length(body), event::text,
        'postrider.TestEvent', subject, '', '1'), postrider_internal.hold_without_job(target), at, at)
    RETURNING id INTO delivery;
    INSERT INTO postrider_internal.rollup_deltas (entries)
    VALUES (ARRAY [postrider_internal.count_entry(t.id, target, 'matched', 1)]);
    PERFORM postrider_internal.note_audit(actor, address, 'test_delivery_created', topic, subscription,
        jsonb_build_object('deliveryId', delivery, 'systemId', event));
    RETURN delivery;
END $$;

CREATE FUNCTION postrider.test_delivery(topic text, subscription text) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN postrider_internal.test_delivery($1, $2, NULL, NULL);
-- +goose StatementEnd

REVOKE EXECUTE ON FUNCTION postrider.test_delivery(text, text) FROM PUBLIC;
COMMENT ON FUNCTION postrider.test_delivery(text, text) IS
    'Delivers a sample event of type postrider.TestEvent, in the topic''s schema, to this event subscription only, '
    'whatever its filter, as part of the calling transaction. The delivery is attempted, retried and counted like any '
    'other, and waits while the event subscription is on hold. Returns the delivery''s id.';

-- +goose Down
DROP FUNCTION postrider.test_delivery, postrider_internal.test_delivery, postrider_internal.test_event,
    postrider_internal.with_mapped;
