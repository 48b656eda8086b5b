-- +goose Up
-- Operations on many deliveries: retry and cancel.

-- +goose StatementBegin
-- Starts an operation on the deliveries that a filter matches. The service has validated the filter.
CREATE FUNCTION postrider_internal.operate_on_deliveries(kind text, filter jsonb, rate_per_second integer,
    expected_count bigint, actor text, address text) RETURNS uuid LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    o postrider_internal.operations;
BEGIN
    o.kind := operate_on_deliveries.kind;
    o.filter := operate_on_deliveries.filter;
    o.rate_per_second := operate_on_deliveries.rate_per_second;
    o.expected_count := operate_on_deliveries.expected_count;
    RETURN postrider_internal.start_operation(o, actor, address);
END $$;

-- One step of an operation on deliveries. Those that ended first, or have an attempt in progress, are skipped.
CREATE FUNCTION postrider_internal.step_deliveries(operation uuid, ids bigint[], OUT done bigint, OUT skipped bigint,
    OUT failed bigint, OUT error text) LANGUAGE plpgsql SET client_min_messages = warning
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    o postrider_internal.operations;
BEGIN
    SELECT p.* INTO o FROM postrider_internal.operations p WHERE p.id = operation;
    PERFORM postrider_internal.lock_deliveries(ids);
    SELECT count(*) FILTER (WHERE r.result IS NULL), count(*) FILTER (WHERE r.result IN ('ended', 'running')),
           count(*) FILTER (WHERE r.result NOT IN ('ended', 'running')),
           (array_agg(format('delivery %s: %s', r.id, postrider_internal.result_message(r.result)) ORDER BY r.id)
               FILTER (WHERE r.result NOT IN ('ended', 'running')))[1]
      INTO done, skipped, failed, error
      FROM (SELECT i.id, postrider_internal.try_delivery(i.id, o.kind) AS result FROM unnest(ids) AS i(id) OFFSET 0) r;
END $$;

-- Locks deliveries with their jobs and batches in the order in which all others lock them. Without it, a step that
-- takes one delivery after the other could deadlock with the recorder.
CREATE FUNCTION postrider_internal.lock_deliveries(ids bigint[]) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM postrider_internal.river_job j WHERE j.id = ANY (ARRAY (
        SELECT coalesce(d.job_id, b.job_id) FROM postrider_internal.deliveries d
          LEFT JOIN postrider_internal.batches b ON b.id = d.batch_id WHERE d.id = ANY (ids))) ORDER BY j.id FOR UPDATE;
    PERFORM FROM postrider_internal.batches b WHERE b.id = ANY (ARRAY (
        SELECT d.batch_id FROM postrider_internal.deliveries d WHERE d.id = ANY (ids))) ORDER BY b.id FOR UPDATE;
    PERFORM FROM postrider_internal.deliveries d WHERE d.id = ANY (ids) ORDER BY d.id FOR UPDATE;
END $$;

-- Retries or cancels one delivery. A rejection becomes the result, by the name of its constraint, and does not end the
-- step.
CREATE FUNCTION postrider_internal.try_delivery(delivery bigint, kind text) RETURNS text LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text;
BEGIN
    IF kind = 'retry' THEN
        PERFORM postrider_internal.make_due(delivery);
    ELSE
        PERFORM postrider_internal.end_by_hand(delivery, 'canceled', 'CanceledByOperator', NULL, NULL, NULL);
    END IF;
    RETURN NULL;
EXCEPTION
    WHEN no_data_found THEN
        RETURN 'ended';
    WHEN object_not_in_prerequisite_state THEN
        GET STACKED DIAGNOSTICS problem = CONSTRAINT_NAME;
        IF problem = '' THEN
            RAISE;
        END IF;
        RETURN problem;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION postrider_internal.try_delivery, postrider_internal.lock_deliveries, postrider_internal.step_deliveries,
    postrider_internal.operate_on_deliveries;
