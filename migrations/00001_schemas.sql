-- +goose Up
-- The two schemas, and functions that several topics share. Schema postrider is the SQL contract; postrider_internal
-- has the tables, River's included, and may change.

CREATE SCHEMA IF NOT EXISTS postrider;

-- +goose StatementBegin
-- A body is accepted as any valid JSON text, and PostgreSQL's jsonb cannot hold all of that (\u0000, a lone surrogate,
-- 1e999999). One such row must never fail the query over all the others, so questions go through this function. Not
-- PARALLEL SAFE: catching an error takes a subtransaction, which PostgreSQL rejects in parallel queries up to 16.
--
-- The names in these three functions are qualified: lists call them for each row, and setting search_path took as much
-- time again.
CREATE FUNCTION postrider.try_jsonb(body bytea) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN pg_catalog.convert_from(body, 'UTF8')::pg_catalog.jsonb;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;

CREATE FUNCTION postrider.jsonb_error(body bytea) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    PERFORM pg_catalog.convert_from(body, 'UTF8')::pg_catalog.jsonb;
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    RETURN SQLERRM;
END $$;

-- An endpoint may respond with any bytes: valid UTF-8 is shown as text, anything else as PostgreSQL's escape format.
CREATE FUNCTION postrider.try_text(body bytea) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN pg_catalog.convert_from(body, 'UTF8');
EXCEPTION WHEN OTHERS THEN
    RETURN pg_catalog.encode(body, 'escape');
END $$;
-- +goose StatementEnd

-- All users may call these; the owner's default privileges may be others.
GRANT EXECUTE ON FUNCTION postrider.try_jsonb(bytea), postrider.jsonb_error(bytea), postrider.try_text(bytea) TO PUBLIC;
COMMENT ON SCHEMA postrider IS 'postrider''s SQL contract: documented views and functions.';
COMMENT ON SCHEMA postrider_internal IS
    'postrider''s tables and River''s. No contract: read the views of schema postrider instead.';
COMMENT ON FUNCTION postrider.try_jsonb(bytea) IS
    'Returns the bytes as jsonb, or NULL if PostgreSQL''s jsonb cannot hold them. It never fails.';
COMMENT ON FUNCTION postrider.jsonb_error(bytea) IS
    'Returns why try_jsonb() returns NULL for these bytes; otherwise NULL.';
COMMENT ON FUNCTION postrider.try_text(bytea) IS
    'The bytes as text if they are valid UTF-8, else in escape format; never fails.';

-- +goose StatementBegin
-- An interval in seconds as a number: what people compare and sort by.
CREATE FUNCTION postrider_internal.seconds(i interval) RETURNS double precision
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN extract(epoch FROM i)::double precision;

-- Ids are created as the service creates them: version 7, with the time in milliseconds and in 4,096ths of one (60 bits
-- before the 7 is inserted). So the ids of one publish are in the order of its events, and lists show them in it.
CREATE FUNCTION postrider_internal.new_uuid() RETURNS uuid LANGUAGE sql VOLATILE
RETURN (overlay(lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 512 / 125), 15, '0')
    PLACING '7' FROM 13 FOR 0) || right(gen_random_uuid()::text, 17))::uuid;

-- What these functions lock, publishing or recording may wait for: an attempt that ends finds its job's row locked, and
-- its result waits in its node's memory until this one ends. So a transaction that calls one and then idles for 5 s is
-- ended by PostgreSQL, unless its session has a shorter limit.
CREATE FUNCTION postrider_internal.commit_soon() RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (SELECT setting::integer NOT BETWEEN 1 AND 5000 FROM pg_settings
        WHERE name = 'idle_in_transaction_session_timeout') THEN
        PERFORM set_config('idle_in_transaction_session_timeout', '5s', true);
    END IF;
END $$;

CREATE FUNCTION postrider_internal.json_time(at timestamptz) RETURNS text LANGUAGE sql STABLE
RETURN to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');

-- The time in an id of version 7; NULL of the lowest id.
CREATE FUNCTION postrider_internal.time_of_id(id uuid) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN to_timestamp(nullif(('x' || translate(left(id::text, 13), '-', ''))::bit(48)::bigint, 0) / 1000.0);
-- +goose StatementEnd

-- +goose StatementBegin
-- Attaches the partition of a day to its table.
CREATE FUNCTION postrider_internal.attach_partition(parent text, day date) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('ALTER TABLE postrider_internal.%I ATTACH PARTITION postrider_internal.%I
                    FOR VALUES FROM (%L) TO (%L)', parent, parent || to_char(day, '_YYYYMMDD'), day, day + 1);
END $$;

-- Creates the partition of a day as a separate table and attaches it: publishing and recording continue meanwhile.
-- CREATE TABLE ... PARTITION OF would block both.
--
-- 1,000 distinct event subscriptions, as for deliveries: with few of them PostgreSQL reads the last rows of one in
-- order of id, and reads a whole day for one that has none.
CREATE FUNCTION postrider_internal.create_partition(parent text, day date) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    name text := parent || to_char(day, '_YYYYMMDD');
BEGIN
    EXECUTE format('CREATE TABLE postrider_internal.%I (LIKE postrider_internal.%I
                    INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)', name, parent);
    IF parent = 'delivery_history' THEN
        EXECUTE format('ALTER TABLE postrider_internal.%I ALTER subscription_id SET (n_distinct = 1000)', name);
    END IF;
    -- LIKE does not copy it.
    IF (SELECT relreplident = 'f' FROM pg_class WHERE oid = format('postrider_internal.%I', parent)::regclass) THEN
        EXECUTE format('ALTER TABLE postrider_internal.%I REPLICA IDENTITY FULL', name);
    END IF;
    PERFORM postrider_internal.attach_partition(parent, day);
END $$;

-- Whether a transaction is open that may have written to the partition of a day: it began before the end of the day.
-- What it published is pending after its commit, and no other transaction sees that yet. Later transactions have locks
-- on all days for other reasons. A transaction whose beginning is not visible counts as old.
CREATE FUNCTION postrider_internal.has_writer(partition text, day date) RETURNS boolean LANGUAGE sql STABLE
RETURN EXISTS (
    SELECT FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
     WHERE l.locktype = 'relation' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
       AND l.relation = to_regclass('postrider_internal.' || quote_ident(partition)) AND l.mode = 'RowExclusiveLock'
       AND ((a.xact_start AT TIME ZONE 'UTC')::date <= day) IS NOT FALSE);
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION postrider_internal.has_writer, postrider_internal.create_partition, postrider_internal.attach_partition,
    postrider_internal.time_of_id, postrider_internal.json_time, postrider_internal.commit_soon,
    postrider_internal.new_uuid, postrider_internal.seconds, postrider.try_text, postrider.jsonb_error,
    postrider.try_jsonb;
DROP SCHEMA postrider;
