-- +goose Up
-- Idempotency keys of publishes, and keys of events whose topics detect duplicates.

CREATE TABLE postrider_internal.idempotency_keys (
    topic_id    bigint NOT NULL,
    key_hash    bytea NOT NULL,
    event_uuids uuid[] NOT NULL,
    expires_at  timestamptz NOT NULL,
    PRIMARY KEY (topic_id, key_hash)
);
CREATE INDEX idempotency_keys_expiry_idx ON postrider_internal.idempotency_keys (expires_at);

-- Events of topics that detect duplicates, by the first half of the SHA-256 of their source and id. One row for each
-- event, half as wide as a row of idempotency_keys.
CREATE TABLE postrider_internal.event_keys (
    topic_id    bigint NOT NULL,
    key_hash    uuid NOT NULL,
    event_uuid  uuid NOT NULL,
    expires_at  timestamptz NOT NULL,
    PRIMARY KEY (topic_id, key_hash)
);
CREATE INDEX event_keys_expiry_idx ON postrider_internal.event_keys (expires_at);

-- +goose StatementBegin
-- The key of an event for duplicate detection. A text in PostgreSQL has no zero byte, so the separator is unambiguous.
CREATE FUNCTION postrider_internal.event_key(source text, event_id text) RETURNS uuid LANGUAGE sql
    IMMUTABLE PARALLEL SAFE
RETURN encode(substr(sha256(convert_to(source, 'UTF8') || '\x00' || convert_to(event_id, 'UTF8')), 1, 16),
    'hex')::uuid;

-- Takes the keys of events for the windows of their topics. Returns for each event its own id, or the id of the event
-- that was published first with the same key. An event without a key keeps its own id. If another open transaction took
-- a key, the function waits for its end. Keys are taken in order, so that two calls never deadlock.
--
-- The unique index alone decides, and only rows are locked: a transaction may publish any number of events. A repeat
-- only reads, and so blocks no one else. The settings force the plan for a large table, which is kept.
CREATE FUNCTION postrider_internal.take_events(topics bigint[], minutes integer[], keys uuid[], ids uuid[])
RETURNS uuid[] LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
    SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    firsts uuid[];
BEGIN
    LOOP
        INSERT INTO postrider_internal.event_keys AS k (topic_id, key_hash, event_uuid, expires_at)
        SELECT DISTINCT ON (e.topic_id, e.key) e.topic_id, e.key, e.id,
               clock_timestamp() + make_interval(mins => e.minutes)
          FROM unnest(topics, minutes, keys, ids) WITH ORDINALITY AS e(topic_id, minutes, key, id, place)
         WHERE e.key IS NOT NULL AND NOT EXISTS (SELECT FROM postrider_internal.event_keys known
                   WHERE known.topic_id = e.topic_id AND known.key_hash = e.key
                     AND known.expires_at > clock_timestamp())
         ORDER BY e.topic_id, e.key, e.place
        ON CONFLICT ON CONSTRAINT event_keys_pkey DO UPDATE SET event_uuid = excluded.event_uuid,
            expires_at = excluded.expires_at WHERE k.expires_at <= clock_timestamp();
        SELECT array_agg(CASE WHEN e.key IS NULL THEN e.id ELSE k.event_uuid END ORDER BY e.place) INTO firsts
          FROM unnest(topics, keys, ids) WITH ORDINALITY AS e(topic_id, key, id, place)
          LEFT JOIN postrider_internal.event_keys k ON k.topic_id = e.topic_id AND k.key_hash = e.key;
        EXIT WHEN array_position(firsts, NULL) IS NULL; -- else the time of one was over, and it was removed, in between
    END LOOP;
    IF firsts <> ids THEN
        INSERT INTO postrider_internal.rollup_deltas (entries)
        SELECT ARRAY [postrider_internal.count_entry(d.topic_id, 0, 'duplicate', count(*), at => clock_timestamp())]
          FROM unnest(topics, firsts, ids) AS d(topic_id, first, id) WHERE d.first <> d.id GROUP BY d.topic_id;
    END IF;
    RETURN firsts;
END $$;

-- take_events for the service, which does not wait for a user's transaction: it may stay open for hours. Returns NULL
-- if another transaction has one of the keys; nothing is taken then, and the service tries again. 1 ms is the shortest
-- wait.
CREATE FUNCTION postrider_internal.try_take_events(topics bigint[], minutes integer[], keys uuid[], ids uuid[])
RETURNS uuid[] LANGUAGE plpgsql
    SET lock_timeout = '1ms' SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN postrider_internal.take_events(topics, minutes, keys, ids);
EXCEPTION WHEN lock_not_available THEN
    RETURN NULL;
END $$;

-- Takes the idempotency keys of publishes for 24 hours. Returns for each whether it was free. ids has the event ids of
-- all publishes in order, sizes how many belong to each. Returns NULL if another transaction has one of the keys:
-- nothing is taken then, and the service tries again. It does not wait, for the same reason as try_take_events.
CREATE FUNCTION postrider_internal.try_take_keys(topics bigint[], hashes bytea[], sizes integer[], ids uuid[])
RETURNS boolean[] LANGUAGE plpgsql
    SET lock_timeout = '1ms' SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
    SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    free boolean[];
BEGIN
    WITH requested AS MATERIALIZED (
        SELECT a.*, sum(size) OVER (ORDER BY place) AS last FROM unnest(topics, hashes, sizes)
        WITH ORDINALITY AS a(topic_id, key_hash, size, place)
    ), taken AS (
        INSERT INTO postrider_internal.idempotency_keys AS k (topic_id, key_hash, event_uuids, expires_at)
        SELECT a.topic_id, a.key_hash, ids[a.last - a.size + 1 : a.last], clock_timestamp() + interval '24 hours'
          FROM requested a
         WHERE NOT EXISTS (SELECT FROM postrider_internal.idempotency_keys known
                 WHERE known.topic_id = a.topic_id AND known.key_hash = a.key_hash
                   AND known.expires_at > clock_timestamp())
         ORDER BY a.topic_id, a.key_hash
        ON CONFLICT ON CONSTRAINT idempotency_keys_pkey
        DO UPDATE SET event_uuids = excluded.event_uuids, expires_at = excluded.expires_at
         WHERE k.expires_at <= clock_timestamp()
        RETURNING k.topic_id, k.key_hash
    )
    SELECT array_agg(EXISTS (SELECT FROM taken t WHERE t.topic_id = a.topic_id AND t.key_hash = a.key_hash)
        ORDER BY a.place) INTO free FROM requested a;
    RETURN free;
EXCEPTION WHEN lock_not_available THEN
    RETURN NULL;
END $$;

-- The service chooses keys by its catalog in memory. Called last, this checks that the catalog was current.
CREATE FUNCTION postrider_internal.require_catalog(seen bigint) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (SELECT c.version FROM postrider_internal.catalog c) <> seen THEN
        RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'topics, event subscriptions or retry policies were changed';
    END IF;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION postrider_internal.require_catalog, postrider_internal.try_take_keys,
    postrider_internal.try_take_events, postrider_internal.take_events, postrider_internal.event_key;
DROP TABLE postrider_internal.event_keys, postrider_internal.idempotency_keys;
