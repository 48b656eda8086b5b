-- +goose Up
-- Counts of what was published, attempted and ended. Lists, charts and backlogs read these, never the big tables.

-- Publishing and recording append what they count, a few rows for each group: upserts would compete for the same few
-- rows, and one row for each of 1,000 event subscriptions cost a third of a core. A background merge adds the rows up.
CREATE TYPE postrider_internal.rollup_entry AS (
    minute          timestamptz,
    topic_id        bigint,
    subscription_id bigint,
    kind            text,
    detail          text,
    bucket          integer,
    count           bigint,
    operation_id    uuid -- of the end of a redelivery: the operation that redelivered it
);

CREATE TABLE postrider_internal.rollup_deltas (
    entries postrider_internal.rollup_entry[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- Statements append what they count so:
--   INSERT INTO rollup_deltas (entries) SELECT array_agg(count_entry(…)) FROM … HAVING count(*) > 0
-- The planner replaces the function by its expression.
CREATE FUNCTION postrider_internal.count_entry(topic_id bigint, subscription_id bigint, kind text, count bigint,
    detail text DEFAULT '', bucket integer DEFAULT NULL, operation_id uuid DEFAULT NULL, at timestamptz DEFAULT now())
    RETURNS postrider_internal.rollup_entry LANGUAGE sql STABLE
RETURN ROW (date_trunc('minute', at), topic_id, subscription_id, kind, detail, bucket, count,
            operation_id)::postrider_internal.rollup_entry;
-- One of 14 buckets of latency, from 0.
CREATE FUNCTION postrider_internal.latency_bucket(microseconds bigint) RETURNS integer LANGUAGE sql IMMUTABLE
RETURN width_bucket(microseconds, '{5000, 10000, 25000, 50000, 100000, 250000, 500000, 1000000, 2500000, 5000000,
                                    10000000, 30000000, 60000000}'::bigint[]);

-- Rows live for seconds: compressing them would only cost time. They are vacuumed by count, not by share of the table.
ALTER TABLE postrider_internal.rollup_deltas ALTER COLUMN entries SET STORAGE EXTERNAL;
-- As for delivery_attempts: a key would cost each publish an index.
ALTER TABLE postrider_internal.rollup_deltas REPLICA IDENTITY FULL;

CREATE TABLE postrider_internal.rollups (
    minute          timestamptz NOT NULL,
    topic_id        bigint NOT NULL,
    subscription_id bigint NOT NULL DEFAULT 0,
    kind            text NOT NULL,
    detail          text NOT NULL DEFAULT '',
    count           bigint NOT NULL,
    latency_buckets bigint[],
    PRIMARY KEY (minute, topic_id, subscription_id, kind, detail)
) WITH (fillfactor = 60); -- a minute is added to about six times; in place it costs a fifth less

-- The same counts, added up for pages that cover days, so that these read some thousand rows at any traffic: by hour
-- for each event subscription, by quarter of an hour for each topic (subscription_id 0), by minute and quarter for all
-- (topic_id 0). The statement that merges the minutes also merges these.
CREATE TABLE postrider_internal.rollup_sums (
    span            smallint NOT NULL, -- in minutes: 1, 15, 60
    begins          timestamptz NOT NULL,
    topic_id        bigint NOT NULL,
    subscription_id bigint NOT NULL,
    kind            text NOT NULL,
    detail          text NOT NULL,
    count           bigint NOT NULL,
    latency_buckets bigint[],
    PRIMARY KEY (span, begins, topic_id, subscription_id, kind, detail)
) WITH (fillfactor = 60);

-- Pending deliveries of each event subscription, without what is still in rollup_deltas. The merge updates both in one
-- statement, so that a backlog of any size is known without counting it.
CREATE TABLE postrider_internal.backlog_counts (
    subscription_id bigint PRIMARY KEY,
    deliveries      bigint NOT NULL
) WITH (fillfactor = 50);

-- How the redeliveries of an operation ended, without what is still in rollup_deltas. An operation of a million
-- redeliveries is read without counting them, and its counts outlive the deliveries.
CREATE TABLE postrider_internal.operation_outcomes (
    operation_id uuid NOT NULL,
    state        text NOT NULL,
    deliveries   bigint NOT NULL,
    PRIMARY KEY (operation_id, state)
) WITH (fillfactor = 50);

-- +goose StatementBegin
-- The names in these two functions are qualified: aggregates call them for each row, and setting search_path took as
-- much time again.

-- Adds the latency buckets of two counts; NULL if one of them has none.
CREATE FUNCTION postrider_internal.add_buckets(a bigint[], b bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    RETURN ARRAY [pg_catalog.int8pl(a[1], b[1]), pg_catalog.int8pl(a[2], b[2]), pg_catalog.int8pl(a[3], b[3]),
        pg_catalog.int8pl(a[4], b[4]), pg_catalog.int8pl(a[5], b[5]), pg_catalog.int8pl(a[6], b[6]),
        pg_catalog.int8pl(a[7], b[7]), pg_catalog.int8pl(a[8], b[8]), pg_catalog.int8pl(a[9], b[9]),
        pg_catalog.int8pl(a[10], b[10]), pg_catalog.int8pl(a[11], b[11]), pg_catalog.int8pl(a[12], b[12]),
        pg_catalog.int8pl(a[13], b[13]), pg_catalog.int8pl(a[14], b[14])];
END $$;

-- Adds a count to one of 14 latency buckets; NULL before the first one that has a bucket.
CREATE FUNCTION postrider_internal.add_to_bucket(buckets bigint[], bucket integer, count bigint) RETURNS bigint[]
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF bucket IS NOT NULL THEN
        buckets := coalesce(buckets, pg_catalog.array_fill(0::bigint, ARRAY [14]));
        bucket := pg_catalog.int4pl(bucket, 1);
        buckets[bucket] := pg_catalog.int8pl(buckets[bucket], count);
    END IF;
    RETURN buckets;
END $$;
-- +goose StatementEnd

-- Latency buckets added up: of counts that have them, and of entries of rollup_deltas; NULL if none has any.
CREATE AGGREGATE postrider_internal.sum_buckets(bigint[]) (
    SFUNC = postrider_internal.add_buckets, STYPE = bigint[],
    COMBINEFUNC = postrider_internal.add_buckets, PARALLEL = SAFE);
CREATE AGGREGATE postrider_internal.count_buckets(bucket integer, count bigint) (
    SFUNC = postrider_internal.add_to_bucket, STYPE = bigint[], PARALLEL = SAFE);

-- +goose Down
DROP AGGREGATE postrider_internal.count_buckets(integer, bigint), postrider_internal.sum_buckets(bigint[]);
DROP FUNCTION postrider_internal.add_to_bucket, postrider_internal.add_buckets, postrider_internal.latency_bucket,
    postrider_internal.count_entry;
DROP TABLE postrider_internal.operation_outcomes, postrider_internal.backlog_counts, postrider_internal.rollup_sums,
    postrider_internal.rollups, postrider_internal.rollup_deltas;
DROP TYPE postrider_internal.rollup_entry;
