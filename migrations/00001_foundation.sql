-- +goose Up
-- The schema people read. Everything in it is the contract; postrider_internal holds the tables and may change.
CREATE SCHEMA IF NOT EXISTS postrider;

-- River's two GIN indexes serve ad-hoc searches of its web pages, which postrider does not offer. They cost a third of
-- the throughput (25.5k against 38.6k jobs/s measured with and without) and 60 % more WAL. The index on kind is never
-- used by a fetch either: every fetch names state and queue.
DROP INDEX IF EXISTS postrider_internal.river_job_args_index;
DROP INDEX IF EXISTS postrider_internal.river_job_metadata_index;
DROP INDEX IF EXISTS postrider_internal.river_job_kind;

-- One index by state for each of those who look for jobs by their state, in place of River's one for all: a job that is
-- fetched leaves the index of those that can be fetched instead of moving to another place in it. And an index with a
-- condition cannot be taken for a search by id: of a table that was empty when it was last vacuumed PostgreSQL believes that
-- every index has one page, and a fetch once read the whole old index for each of its 600 jobs (283 ms instead of 8).
DROP INDEX IF EXISTS postrider_internal.river_job_prioritized_fetching_index;
CREATE INDEX river_job_available_idx ON postrider_internal.river_job (queue, priority, scheduled_at, id) WHERE state = 'available';
CREATE INDEX river_job_scheduled_idx ON postrider_internal.river_job (queue, priority, scheduled_at, id) WHERE state = 'scheduled';
CREATE INDEX river_job_retryable_idx ON postrider_internal.river_job (queue, priority, scheduled_at, id) WHERE state = 'retryable';
CREATE INDEX river_job_running_idx ON postrider_internal.river_job (queue, id) WHERE state = 'running';

-- river_job stays nearly empty while every row of it lives for milliseconds: vacuum by count, not by share of the table.
ALTER TABLE postrider_internal.river_job SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000
);

-- +goose StatementBegin
-- A body is accepted as any valid JSON text, and PostgreSQL's jsonb cannot hold all of that (\u0000, a lone surrogate,
-- 1e999999). One such row must never fail the query over all the others, so questions go through this function. Not
-- PARALLEL SAFE: catching an error takes a subtransaction, which PostgreSQL refuses in parallel queries up to 16.
CREATE FUNCTION postrider.try_jsonb(body bytea) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN convert_from(body, 'UTF8')::jsonb;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;

CREATE FUNCTION postrider.jsonb_error(body bytea) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    PERFORM convert_from(body, 'UTF8')::jsonb;
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    RETURN SQLERRM;
END $$;

-- Response excerpts are bytes of strangers: valid UTF-8 is shown as text, anything else as PostgreSQL's escape format.
CREATE FUNCTION postrider.try_text(body bytea) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN convert_from(body, 'UTF8');
EXCEPTION WHEN OTHERS THEN
    RETURN encode(body, 'escape');
END $$;
-- +goose StatementEnd

COMMENT ON SCHEMA postrider IS 'postrider''s SQL contract: documented views and functions.';
COMMENT ON SCHEMA postrider_internal IS 'postrider''s tables and River''s. No contract: read the views of schema postrider instead.';
COMMENT ON FUNCTION postrider.try_jsonb(bytea) IS 'The bytes as jsonb, or NULL where PostgreSQL''s jsonb cannot hold them; never fails.';
COMMENT ON FUNCTION postrider.jsonb_error(bytea) IS 'Why try_jsonb() answers NULL for these bytes; NULL when it does not.';
COMMENT ON FUNCTION postrider.try_text(bytea) IS 'The bytes as text if they are valid UTF-8, else in escape format; never fails.';

-- +goose Down
DROP INDEX postrider_internal.river_job_available_idx, postrider_internal.river_job_scheduled_idx, postrider_internal.river_job_retryable_idx,
    postrider_internal.river_job_running_idx;
CREATE INDEX river_job_prioritized_fetching_index ON postrider_internal.river_job (state, queue, priority, scheduled_at, id);
DROP FUNCTION postrider.try_text(bytea);
DROP FUNCTION postrider.jsonb_error(bytea);
DROP FUNCTION postrider.try_jsonb(bytea);
DROP SCHEMA postrider;
