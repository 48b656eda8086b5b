-- +goose Up
-- Pull delivery in SQL: the functions that consumers call in their own transactions, and the view of their locks.

-- +goose StatementBegin
-- Raises an error unless a value is in its range. NULL is in the range.
CREATE FUNCTION postrider_internal.require_range(name text, value integer, lowest integer, highest integer, hint text)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF value NOT BETWEEN lowest AND highest THEN
        RAISE EXCEPTION USING ERRCODE = '22023', COLUMN = name, HINT = hint,
            MESSAGE = format('%s must be %s to %s, is %s', name, lowest, highest, value);
    END IF;
END $$;

CREATE FUNCTION postrider_internal.require_lock_seconds(lock_seconds integer) RETURNS interval LANGUAGE sql BEGIN ATOMIC
SELECT postrider_internal.require_range('lock_seconds', lock_seconds, 60, 300,
    'NULL is the event subscription''s own setting, receiveLockDurationInSeconds.');
SELECT make_interval(secs => lock_seconds);
END;

-- The event that a consumer receives. Those of topics with another input schema become CloudEvents; only a redelivery
-- creates deliveries of them. NULL: PostgreSQL cannot hold the event as jsonb.
CREATE FUNCTION postrider_internal.received_event(delivery_id bigint, schema text, body bytea, topic text) RETURNS jsonb
LANGUAGE sql STABLE
RETURN CASE WHEN schema = 'CloudEventSchemaV1_0' THEN postrider.try_jsonb(body)
            WHEN postrider.try_jsonb(body) IS NOT NULL THEN (
                 SELECT jsonb_strip_nulls(jsonb_build_object('specversion', '1.0', 'id', e.event_id,
                            'source', coalesce(nullif(e.source, ''), '/topics/' || topic), 'type', e.event_type,
                            'subject', nullif(e.subject, ''), 'time', postrider_internal.json_time(e.event_time),
                            'dataversion', nullif(e.data_version, '')))
                        || CASE WHEN data.value IS NULL THEN '{}'
                                ELSE jsonb_build_object('datacontenttype', 'application/json', 'data', data.value) END
                   FROM postrider_internal.deliveries d
                   JOIN postrider_internal.events e ON e.id = d.event_uuid AND e.day = d.event_day
                  CROSS JOIN postrider_internal.event_data(schema, body) AS data(value)
                  WHERE d.id = delivery_id) END;

CREATE FUNCTION postrider.receive(topic text, subscription text, max_events integer DEFAULT 1,
    lock_seconds integer DEFAULT NULL)
RETURNS TABLE (lock_token text, delivery_count integer, event jsonb, event_text text, locked_until timestamptz,
    event_id text, delivery_id bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_custom_plan
SET jit = off AS $$
DECLARE
    id bigint := postrider_internal.find_subscription(topic, subscription);
    duration interval := postrider_internal.require_lock_seconds(lock_seconds);
    most_bytes CONSTANT bigint := 8 << 20;
    bytes bigint := 0;
    size bigint;
    lock_id uuid;
    surplus bigint[] := '{}';
    surplus_locks uuid[] := '{}';
BEGIN
    PERFORM postrider_internal.require_range('max_events', coalesce(max_events, 0), 1, 1000,
        'Call the function again for more.');
    IF (postrider_internal.pull_settings_of(id)).queued IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = 'push', COLUMN = 'subscription',
            MESSAGE = format('event subscription "%s" of topic "%s" has delivery mode Push', subscription, topic),
            HINT = 'Consumers receive from event subscriptions with deliveryConfiguration.deliveryMode Queue. '
                'SELECT topic, subscription FROM postrider.event_subscriptions WHERE delivery_mode = ''Queue'' lists '
                'those there are.';
    END IF;
    FOR lock_token, delivery_count, event, event_text, locked_until, event_id, delivery_id, lock_id IN
        SELECT encode(int8send(r.delivery_id) || uuid_send(r.lock_id), 'base64'), r.delivery_count, e.event,
               CASE WHEN r.schema = 'CloudEventSchemaV1_0' THEN convert_from(r.body, 'UTF8')
                    ELSE coalesce(e.event::text, convert_from(r.body, 'UTF8')) END,
               r.locked_until, r.event_id, r.delivery_id, r.lock_id
          FROM postrider_internal.receive_deliveries(id, max_events, most_bytes, duration, session_user::text) r
         CROSS JOIN LATERAL (SELECT postrider_internal.received_event(r.delivery_id, r.schema, r.body, topic) OFFSET 0)
            AS e(event)
    LOOP
        -- jsonb may print a value longer than it was published: 1e1000 has 1,001 digits.
        size := greatest(octet_length(event_text), octet_length(event::text));
        IF surplus = '{}' AND (bytes = 0 OR bytes + size <= most_bytes) THEN
            bytes := bytes + size;
            RETURN NEXT;
        ELSE
            surplus := surplus || delivery_id;
            surplus_locks := surplus_locks || lock_id;
        END IF;
    END LOOP;
    PERFORM postrider_internal.settle_locks(id, surplus, surplus_locks, 'returned', '0', false, session_user::text)
      WHERE surplus <> '{}';
END $$;

-- Ends or renews the locks of tokens, and returns the lost tokens: those without such a lock. Strict: it raises an
-- error for the first of them.
CREATE FUNCTION postrider_internal.settle_tokens(tokens text[], how text, duration interval, strict boolean)
RETURNS text[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    deliveries bigint[];
    locks uuid[];
    malformed text[];
    settled bigint[];
    lost text[];
BEGIN
    SELECT array_agg(('x' || left(k.hex, 16))::bit(64)::bigint ORDER BY t.position),
           array_agg(right(k.hex, 32)::uuid ORDER BY t.position),
           array_agg(coalesce(t.token, 'NULL') ORDER BY t.position) FILTER (WHERE k.hex IS NULL)
      INTO deliveries, locks, malformed
      FROM unnest(tokens) WITH ORDINALITY AS t(token, position)
     CROSS JOIN LATERAL (SELECT CASE WHEN t.token ~ '^[A-Za-z0-9+/]{32}$'
                                     THEN encode(decode(t.token, 'base64'), 'hex') END) AS k(hex);
    IF malformed <> '{}' AND strict IS NOT FALSE THEN
        RAISE EXCEPTION USING ERRCODE = '22023', COLUMN = 'tokens',
            MESSAGE = format('"%s" is not a lock token', left(malformed[1], 64)),
            HINT = 'postrider.receive() returns a lock_token with each event: 32 characters of base64.';
    END IF;
    settled := CASE how WHEN 'renewed' THEN postrider_internal.renew_locks(NULL, deliveries, locks, duration, false)
        ELSE postrider_internal.settle_locks(NULL, deliveries, locks, how, duration, false, session_user::text) END;
    lost := ARRAY (SELECT t.token FROM unnest(tokens) WITH ORDINALITY AS t(token, position)
                    WHERE t.position <> ALL (settled) ORDER BY t.position);
    IF lost <> '{}' AND strict IS NOT FALSE THEN
        RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = 'lost', COLUMN = 'tokens',
            MESSAGE = format('%s of %s lock tokens are lost, first "%s"', cardinality(lost), cardinality(tokens),
                lost[1]),
            HINT = CASE how WHEN 'renewed' THEN 'A lock can be renewed for an hour. ' ELSE '' END
                || 'These locks have expired, or were acknowledged, released or rejected before. strict => false '
                'returns the lost tokens instead of this error.';
    END IF;
    RETURN lost;
END $$;

CREATE FUNCTION postrider.acknowledge(tokens text[], strict boolean DEFAULT true) RETURNS text[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_custom_plan
SET jit = off AS $$
BEGIN
    RETURN postrider_internal.settle_tokens(tokens, 'acknowledged', '0', strict);
END $$;

CREATE FUNCTION postrider.release_locks(tokens text[], delay_seconds integer DEFAULT 0, strict boolean DEFAULT true)
RETURNS text[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan SET jit = off AS $$
BEGIN
    PERFORM postrider_internal.require_range('delay_seconds', delay_seconds, 0, 3600, '0 = available at once.');
    RETURN postrider_internal.settle_tokens(tokens, 'released', make_interval(secs => coalesce(delay_seconds, 0)),
        strict);
END $$;

CREATE FUNCTION postrider.reject(tokens text[], strict boolean DEFAULT true) RETURNS text[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_custom_plan
SET jit = off AS $$
BEGIN
    RETURN postrider_internal.settle_tokens(tokens, 'rejected', '0', strict);
END $$;

CREATE FUNCTION postrider.renew(tokens text[], lock_seconds integer DEFAULT NULL, strict boolean DEFAULT true)
RETURNS text[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan SET jit = off AS $$
BEGIN
    RETURN postrider_internal.settle_tokens(tokens, 'renewed', postrider_internal.require_lock_seconds(lock_seconds),
        strict);
END $$;
-- +goose StatementEnd

REVOKE EXECUTE ON FUNCTION postrider.receive(text, text, integer, integer), postrider.acknowledge(text[], boolean),
    postrider.release_locks(text[], integer, boolean), postrider.reject(text[], boolean),
    postrider.renew(text[], integer, boolean) FROM PUBLIC;
COMMENT ON FUNCTION postrider.receive(text, text, integer, integer) IS
    'Locks up to max_events (1 to 1,000) available events of an event subscription with delivery mode Queue, and '
    'returns them: at most 8 MiB, but at least one. Events that have had all their deliveries end instead. It does not '
    'wait: without available events, and while the event subscription is on hold, it returns no row. Others do not '
    'receive an event until its lock ends: by postrider.acknowledge(), '
    'release_locks() or reject(), or at locked_until. lock_seconds: 60 to 300; NULL = the event subscription''s '
    'setting. A receive that is rolled back never happened. Returns lock_token, delivery_count (1 = first delivery), '
    'event (a CloudEvent; NULL if PostgreSQL''s jsonb cannot hold it), event_text (the event as text), locked_until, '
    'event_id and delivery_id.';
COMMENT ON FUNCTION postrider.acknowledge(text[], boolean) IS
    'Ends deliveries as delivered, by their lock tokens, as part of the calling transaction. A token is lost if its '
    'lock has ended. strict: lost tokens raise an error, so that the transaction is rolled back; strict => false '
    'returns the lost tokens and acknowledges the others. An expired lock is valid until postrider ends it, which '
    'takes a fraction of a second. tokens may be empty or NULL.';
COMMENT ON FUNCTION postrider.release_locks(text[], integer, boolean) IS
    'Makes events available again, after delay_seconds (0 to 3,600; at most until the time to live ends), by their '
    'lock tokens. A release counts as a delivery: after the last allowed delivery, the event becomes a dead letter. '
    'tokens and strict as in postrider.acknowledge().';
COMMENT ON FUNCTION postrider.reject(text[], boolean) IS
    'Ends deliveries as dead letters with reason RejectedByConsumer, by their lock tokens; as dropped if the event '
    'subscription keeps no dead letters. tokens and strict as in postrider.acknowledge().';
COMMENT ON FUNCTION postrider.renew(text[], integer, boolean) IS
    'Lets locks last lock_seconds (60 to 300; NULL = the event subscription''s setting) from now on. The tokens stay '
    'valid. A lock can be renewed for an hour after its receive. tokens and strict as in postrider.acknowledge().';

-- A lock is a row of the jobs. The delivery's own row says whether it is the current one.
CREATE VIEW postrider.locks AS
SELECT t.name AS topic, s.name AS subscription, d.id AS delivery_id, e.event_id, j.args ->> 'c' AS consumer,
       (j.args ->> 'n')::integer AS delivery_count, to_timestamp((j.args ->> 'f')::double precision) AS received_at,
       j.scheduled_at AS locked_until, d.event_uuid AS system_id, d.subscription_id
  FROM postrider_internal.river_job j
  JOIN postrider_internal.deliveries d ON d.id = (j.args ->> 'd')::bigint AND d.job_id = j.id
  JOIN postrider_internal.event_subscriptions s ON s.id = d.subscription_id
  JOIN postrider_internal.topics t ON t.id = d.topic_id
  LEFT JOIN postrider_internal.events e ON e.id = d.event_uuid AND e.day = d.event_day
 WHERE j.queue = 'locks' AND j.state = 'scheduled' AND j.kind = 'lock';
COMMENT ON VIEW postrider.locks IS
    'Events that consumers have received and not settled yet: who has each one, and until when. Locks of open '
    'transactions are not visible. Lock tokens are not shown: they allow to settle the events.';
COMMENT ON COLUMN postrider.locks.topic IS 'Topic.';
COMMENT ON COLUMN postrider.locks.subscription IS 'Event subscription.';
COMMENT ON COLUMN postrider.locks.delivery_id IS 'Delivery, see postrider.deliveries.';
COMMENT ON COLUMN postrider.locks.event_id IS 'The publisher''s id of the event.';
COMMENT ON COLUMN postrider.locks.consumer IS 'Who received it: in SQL the login role.';
COMMENT ON COLUMN postrider.locks.delivery_count IS 'How many times the event was received, with this time.';
COMMENT ON COLUMN postrider.locks.received_at IS 'When it was received.';
COMMENT ON COLUMN postrider.locks.locked_until IS 'When the lock expires, unless the consumer renews it.';
COMMENT ON COLUMN postrider.locks.system_id IS 'postrider''s own id of the event.';
COMMENT ON COLUMN postrider.locks.subscription_id IS 'Id of the event subscription, see postrider.event_subscriptions.';

-- +goose Down
DROP VIEW postrider.locks;
DROP FUNCTION postrider.renew, postrider.reject, postrider.release_locks, postrider.acknowledge,
    postrider_internal.settle_tokens, postrider.receive, postrider_internal.received_event,
    postrider_internal.require_lock_seconds, postrider_internal.require_range;
