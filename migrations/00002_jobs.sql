-- +goose Up
-- Job rows, the nodes that run them, and locks. River's migrations have created river_job.

-- River's two GIN indexes serve ad-hoc searches of its web pages, which postrider does not offer. They cost a third of
-- the throughput (25.5k against 38.6k jobs/s measured with and without) and 60 % more WAL. The index on kind is never
-- used by a fetch either: every fetch names state and queue.
DROP INDEX IF EXISTS postrider_internal.river_job_args_index;
DROP INDEX IF EXISTS postrider_internal.river_job_metadata_index;
DROP INDEX IF EXISTS postrider_internal.river_job_kind;

-- One index for each state that jobs are searched by, in place of River's one for all: a job that is fetched leaves the
-- index of those that can be fetched instead of moving to another place in it. And PostgreSQL cannot use an index with
-- a condition for a search by id: of a table that was empty when it was last vacuumed it assumes that every index has
-- one page, and a fetch once read the whole old index for each of its 600 jobs (283 ms instead of 8).
DROP INDEX IF EXISTS postrider_internal.river_job_prioritized_fetching_index;
CREATE INDEX river_job_available_idx ON postrider_internal.river_job (queue, priority, scheduled_at, id)
WHERE state = 'available';
CREATE INDEX river_job_scheduled_idx ON postrider_internal.river_job (queue, priority, scheduled_at, id)
WHERE state = 'scheduled';
CREATE INDEX river_job_running_idx ON postrider_internal.river_job (queue, id) WHERE state = 'running';

-- Our statements write fixed kinds, queues and priorities, and delete finished jobs. Each statement that inserts jobs
-- would compile River's conditions again, which took 4 % of PostgreSQL's time.
ALTER TABLE postrider_internal.river_job DROP CONSTRAINT finalized_or_finalized_at_null, DROP CONSTRAINT kind_length,
    DROP CONSTRAINT max_attempts_is_positive, DROP CONSTRAINT priority_in_range, DROP CONSTRAINT queue_length;

-- river_job stays nearly empty while every row of it lives for milliseconds: vacuum by count, not by share of the
-- table.
ALTER TABLE postrider_internal.river_job SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000
);

-- River's function, whose body depended on search_path.
CREATE OR REPLACE FUNCTION postrider_internal.river_job_state_in_bitmask(bitmask bit,
    state postrider_internal.river_job_state) RETURNS boolean LANGUAGE sql IMMUTABLE
RETURN CASE state WHEN 'available' THEN get_bit(bitmask, 7) WHEN 'cancelled' THEN get_bit(bitmask, 6)
    WHEN 'completed' THEN get_bit(bitmask, 5) WHEN 'discarded' THEN get_bit(bitmask, 4)
    WHEN 'pending' THEN get_bit(bitmask, 3) WHEN 'retryable' THEN get_bit(bitmask, 2)
    WHEN 'running' THEN get_bit(bitmask, 1) WHEN 'scheduled' THEN get_bit(bitmask, 0) ELSE 0 END = 1;

-- What a statement sets of the jobs that it inserts; the rest are River's defaults.
CREATE VIEW postrider_internal.new_jobs AS
SELECT id, state, attempt, attempted_at, attempted_by, args, kind, queue, priority, max_attempts, scheduled_at
  FROM postrider_internal.river_job;

-- +goose StatementBegin
-- The row of a new job. Every statement inserts its jobs so: INSERT INTO new_jobs SELECT j.* FROM …, new_job(…) j. The
-- planner replaces the function by its expressions, which take no time (2 of the 30 µs of a row, with or without it); a
-- function that inserts would take 0.1 ms for each statement. If an argument is volatile or a subquery, the function is
-- called for each row instead.
--
-- A job with a node runs there already. Other jobs of deliveries are available up to 5 s ahead, with their time:
-- River's poll is exact then. Later ones are scheduled until a node promotes them: each fetch reads past jobs that are
-- available and not due (500,000 such rows: 39 ms an empty poll). Locks are scheduled until they end. The other queues
-- have few jobs, which are available before they are due. A kind that is unknown here has no queue, and fails.
CREATE FUNCTION postrider_internal.new_job(job_id bigint, kind text, args jsonb, due timestamptz,
    node text DEFAULT NULL, priority integer DEFAULT 1) RETURNS SETOF postrider_internal.new_jobs LANGUAGE sql STABLE
    ROWS 1 BEGIN ATOMIC
SELECT job_id,
       CASE WHEN node IS NOT NULL THEN 'running'::postrider_internal.river_job_state
            WHEN due > now() + interval '5 seconds' AND kind IN ('deliver', 'batch') OR kind = 'lock' THEN 'scheduled'
            ELSE 'available' END,
       CASE WHEN node IS NULL THEN 0 ELSE 1 END::smallint, CASE WHEN node IS NOT NULL THEN now() END,
       CASE WHEN node IS NOT NULL THEN ARRAY [node] END, args, kind,
       CASE kind WHEN 'deliver' THEN 'deliveries' WHEN 'batch' THEN 'deliveries' WHEN 'lock' THEN 'locks'
                 WHEN 'route' THEN 'routes' WHEN 'handshake' THEN 'handshakes' WHEN 'export' THEN 'exports'
                 WHEN 'operation' THEN 'operations' END,
       priority::smallint, 1000::smallint, due;
END;

-- new_job for an attempt, of a delivery or of a batch; of neither for a batch cutter. The arguments are those of
-- queue.AttemptArgs; number is the attempt's, for operators. Removing NULLs would take a microsecond of the 20 of each
-- published event: a call without the last arguments has no NULLs.
CREATE FUNCTION postrider_internal.attempt_job(job_id bigint, due timestamptz, subscription bigint,
    delivery bigint DEFAULT NULL, batch bigint DEFAULT NULL, number integer DEFAULT NULL, reruns integer DEFAULT NULL,
    permits integer DEFAULT NULL, exempt boolean DEFAULT NULL, node text DEFAULT NULL)
RETURNS SETOF postrider_internal.new_jobs LANGUAGE sql STABLE ROWS 1 BEGIN ATOMIC
SELECT j.*
  FROM postrider_internal.new_job(
       job_id, CASE WHEN delivery IS NULL THEN 'batch' ELSE 'deliver' END,
       CASE WHEN batch IS NULL AND reruns IS NULL AND permits IS NULL AND exempt IS NULL AND delivery IS NOT NULL
            THEN jsonb_build_object('s', subscription, 'd', delivery, 'n', number)
            ELSE jsonb_strip_nulls(jsonb_build_object('s', subscription, 'd', delivery, 'b', batch, 'n', number,
                                                      'r', nullif(reruns, 0), 'p', nullif(permits, 0),
                                                      'e', nullif(exempt, false))) END,
       due, node) j;
END;
-- +goose StatementEnd

-- A node is one process. Its heartbeat is a counter, not a time. Another node calls it dead only after it has itself
-- written four heartbeats since this one last changed, so a restart of PostgreSQL makes no node dead.
CREATE TABLE postrider_internal.nodes (
    id         text PRIMARY KEY,
    beat       bigint NOT NULL DEFAULT 0,
    host       text NOT NULL,
    version    text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    beat_at    timestamptz NOT NULL DEFAULT now(),
    -- Inconsistencies that this node's sweeper repaired since its start. It should be 0.
    consistency_repairs bigint NOT NULL DEFAULT 0,
    -- By how much this node divides every wait between attempts: 1, or the --time-scale of dev.
    time_scale integer NOT NULL DEFAULT 1,
    -- Ids of the encryption keys that this node knows: first the one that it encrypts with. Empty: not reported.
    key_ids text[] NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50);

-- One row for each kind of work that only one node may do at a time; key is an event subscription for 'batching', else
-- 0. Advisory locks will not do: any login to the database can hold them. A row that no transaction has locked may be
-- deleted at any time.
CREATE TABLE postrider_internal.locks (
    name text NOT NULL,
    key  bigint NOT NULL,
    PRIMARY KEY (name, key)
) WITH (fillfactor = 50);
INSERT INTO postrider_internal.locks (name, key) VALUES ('partitions', 0), ('sweeper', 0), ('rollups', 0);

-- +goose StatementBegin
-- Has the row of locks until the transaction ends, and waits for it. In a transaction of READ COMMITTED only.
CREATE FUNCTION postrider_internal.lock(name text, key bigint) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    LOOP
        PERFORM FROM postrider_internal.locks l WHERE l.name = lock.name AND l.key = lock.key FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO postrider_internal.locks VALUES (lock.name, lock.key) ON CONFLICT DO NOTHING;
    END LOOP;
END $$;

-- lock without waiting: false if another transaction has the row. Only two first uses of a row wait for each other.
CREATE FUNCTION postrider_internal.try_lock(name text, key bigint) RETURNS boolean LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM postrider_internal.locks l WHERE l.name = try_lock.name AND l.key = try_lock.key
    FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        INSERT INTO postrider_internal.locks VALUES (try_lock.name, try_lock.key) ON CONFLICT DO NOTHING;
    END IF;
    RETURN FOUND;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION postrider_internal.try_lock, postrider_internal.lock, postrider_internal.attempt_job,
    postrider_internal.new_job;
DROP VIEW postrider_internal.new_jobs;
DROP TABLE postrider_internal.locks, postrider_internal.nodes;
DROP INDEX postrider_internal.river_job_running_idx, postrider_internal.river_job_scheduled_idx,
    postrider_internal.river_job_available_idx;
CREATE INDEX river_job_prioritized_fetching_index ON postrider_internal.river_job (state, queue, priority, scheduled_at,
    id);
ALTER TABLE postrider_internal.river_job
    ADD CONSTRAINT finalized_or_finalized_at_null CHECK (
        (finalized_at IS NOT NULL) = (state IN ('cancelled', 'completed', 'discarded'))),
    ADD CONSTRAINT kind_length CHECK (char_length(kind) BETWEEN 1 AND 127),
    ADD CONSTRAINT max_attempts_is_positive CHECK (max_attempts > 0),
    ADD CONSTRAINT priority_in_range CHECK (priority BETWEEN 1 AND 4),
    ADD CONSTRAINT queue_length CHECK (char_length(queue) BETWEEN 1 AND 127);
