-- +goose Up
-- Selections: frozen lists of dead letters or deliveries, and the operations on them.

-- An operation on a selection acts on just the rows that a user has seen counted, however the data changes meanwhile.
CREATE TABLE postrider_internal.selections (
    id         uuid PRIMARY KEY,
    kind       text NOT NULL CHECK (kind IN ('dead_letters', 'deliveries')),
    count      integer NOT NULL CHECK (count <= 1000000),
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL DEFAULT now() + interval '24 hours'
);

-- The items of a selection, from position 1, the oldest first, each once. Without foreign keys: an item may be gone,
-- and checking a million would take as long as storing them.
CREATE TABLE postrider_internal.selection_items (
    selection_id   uuid NOT NULL,
    position       integer NOT NULL,
    dead_letter_id uuid,
    delivery_id    bigint,
    PRIMARY KEY (selection_id, position),
    CONSTRAINT one_id CHECK (num_nonnulls(dead_letter_id, delivery_id) = 1)
) WITH (autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000);

-- The items that an operation on a selection skipped or failed to act on.
CREATE TABLE postrider_internal.operation_results (
    operation_id   uuid NOT NULL,
    position       integer NOT NULL,
    dead_letter_id uuid,
    delivery_id    bigint,
    result         text NOT NULL,
    PRIMARY KEY (operation_id, position)
);

-- Results that name members of the event: an erasure finds them.
CREATE INDEX operation_results_with_text_idx ON postrider_internal.operation_results (dead_letter_id)
    WHERE result LIKE 'invalid: %';

-- +goose StatementBegin
-- Skipped items need no action by this operation; the others failed.
CREATE FUNCTION postrider_internal.is_skipped(result text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT result IN ('missing', 'redelivered', 'unchanged', 'ended', 'running') $$;

CREATE FUNCTION postrider_internal.result_message(result text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CASE result WHEN 'missing' THEN 'it no longer exists'
                   WHEN 'redelivered' THEN 'it was redelivered before'
                   WHEN 'erased' THEN 'its event was erased'
                   WHEN 'deleted' THEN 'its event subscription was deleted'
                   WHEN 'expired' THEN 'its event subscription has expired'
                   WHEN 'schema' THEN 'its event cannot be delivered in the schema of the event subscription'
                   WHEN 'ended' THEN 'the delivery had ended'
                   WHEN 'running' THEN 'an attempt is in progress'
                   WHEN 'paused' THEN 'its event subscription is paused'
                   WHEN 'probation' THEN 'its event subscription is in probation'
                   WHEN 'not_validated' THEN 'its event subscription waits for its endpoint''s validation'
                   WHEN 'unchanged' THEN 'the patch does not change it'
                   WHEN 'topic_deleted' THEN 'its topic was deleted'
                   WHEN 'system_topic' THEN 'its event belongs to postrider'
                   ELSE regexp_replace(result, '^(path|test|invalid|size): ', '') END $$;
-- +goose StatementEnd

CREATE VIEW postrider.operation_results AS
SELECT r.operation_id, r.position, r.dead_letter_id, r.delivery_id, r.result,
       CASE WHEN postrider_internal.is_skipped(r.result) THEN 'skipped' ELSE 'failed' END AS counted_as,
       postrider_internal.result_message(r.result) AS message
  FROM postrider_internal.operation_results r;
COMMENT ON VIEW postrider.operation_results IS
    'The items that an operation on a selection skipped or failed to act on. Kept as long as the operation.';
COMMENT ON COLUMN postrider.operation_results.operation_id IS 'Operation, see postrider.operations.';
COMMENT ON COLUMN postrider.operation_results.position IS 'Position in the selection; 1 = the first.';
COMMENT ON COLUMN postrider.operation_results.dead_letter_id IS 'Dead letter; NULL = the item is a delivery.';
COMMENT ON COLUMN postrider.operation_results.delivery_id IS 'Delivery; NULL = the item is a dead letter.';
COMMENT ON COLUMN postrider.operation_results.result IS 'Why nothing was done:
missing: it no longer exists, for example because it was purged
redelivered: it was redelivered before, and the operation skips those
erased: its event was erased
deleted, expired: its event subscription was deleted, or has expired
schema: the event subscription does not accept its schema
unchanged: the patch of a repair does not change the event
path, test: a path of the patch does not exist, or a test failed; the path follows
invalid, size: the edited event is not valid, or too large; the problem follows, until the event is erased
topic_deleted, system_topic: events of its topic cannot be edited
ended: the delivery had ended
running: an attempt is in progress
paused, probation, not_validated: the hold of its event subscription';
COMMENT ON COLUMN postrider.operation_results.counted_as IS
    'skipped or failed: the column of postrider.operations that counts it.';
COMMENT ON COLUMN postrider.operation_results.message IS 'The result in words.';

-- +goose StatementBegin
-- Freezes the dead letters that a filter matches now. Rejects more than a million, with their number.
CREATE FUNCTION postrider_internal.select_dead_letters(filter jsonb, actor text, address text)
RETURNS postrider_internal.selections LANGUAGE plpgsql SET jit = off AS $$
DECLARE
    s postrider_internal.selections;
    n bigint;
    counted record;
BEGIN
    s.id := postrider_internal.new_uuid();
    EXECUTE 'WITH found AS MATERIALIZED (
        SELECT dead_letter_id AS id, dead_lettered_at FROM postrider.dead_letters WHERE '
        || postrider_internal.dead_letter_condition(filter) || ' LIMIT 1000001
    ), counted AS MATERIALIZED (SELECT count(*) AS n FROM found), stored AS (
        INSERT INTO postrider_internal.selection_items (selection_id, position, dead_letter_id)
        SELECT $1, row_number() OVER (ORDER BY f.dead_lettered_at, f.id), f.id FROM found f
         WHERE (SELECT c.n FROM counted c) <= 1000000
    ) SELECT c.n FROM counted c' INTO n USING s.id;
    IF n > 1000000 THEN
        SELECT * INTO counted FROM postrider_internal.measure_dead_letters(filter, 'infinity', '5 seconds');
        PERFORM postrider_internal.reject_selection(greatest(counted.matched, n), counted.at_least);
    END IF;
    RETURN postrider_internal.add_selection(s.id, 'dead_letters', n, 'filter', actor, address);
END $$;

CREATE FUNCTION postrider_internal.reject_selection(n bigint, at_least boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = '22023', COLUMN = 'count', MESSAGE = format(
        'a selection holds at most 1000000 items, this one would have %s%s',
        CASE WHEN at_least THEN 'at least ' END, n),
        HINT = 'Narrow it down, by time for example.';
END $$;

-- Adds the row of a selection whose items are stored. source: ids, filter or query.
CREATE FUNCTION postrider_internal.add_selection(id uuid, kind text, count bigint, source text, actor text,
    address text) RETURNS postrider_internal.selections LANGUAGE plpgsql AS $$
DECLARE
    s postrider_internal.selections;
BEGIN
    INSERT INTO postrider_internal.selections AS i (id, kind, count, created_by)
    VALUES (add_selection.id, add_selection.kind, add_selection.count, coalesce(actor, session_user))
    RETURNING i.* INTO s;
    PERFORM postrider_internal.note_audit(actor, address, 'selection_created', NULL, NULL, jsonb_build_object(
        'selectionId', id, 'kind', kind, 'count', count, 'source', source));
    RETURN s;
END $$;

-- The selection, if it exists and belongs to the actor; an administrator (any_creator) may use all. The lock keeps it
-- from being removed.
CREATE FUNCTION postrider_internal.find_selection(selection uuid, any_creator boolean, actor text)
RETURNS postrider_internal.selections LANGUAGE plpgsql AS $$
DECLARE
    s postrider_internal.selections;
BEGIN
    SELECT i.* INTO s FROM postrider_internal.selections i WHERE i.id = selection AND i.expires_at > now()
        AND (any_creator OR i.created_by = coalesce(actor, session_user)) FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'P0002', COLUMN = 'selection', MESSAGE = format(
            'selection %s does not exist, has expired or belongs to another user', selection),
            HINT = 'A selection expires after 24 hours. Create it again.';
    END IF;
    RETURN s;
END $$;

-- Starts an operation on a selection. Unless again, dead letters that were redelivered before are skipped. patch, its
-- paths and include_unchanged are of a repair.
CREATE FUNCTION postrider_internal.act_on_selection(selection uuid, kind text, subscription text, topic text,
    again boolean, rate_per_second integer, patch text, paths text[], include_unchanged boolean, any_creator boolean,
    actor text, address text) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
    s postrider_internal.selections := postrider_internal.find_selection(selection, any_creator, actor);
    o postrider_internal.operations;
BEGIN
    IF (s.kind = 'dead_letters') <> (kind NOT IN ('retry', 'cancel')) THEN
        RAISE EXCEPTION USING ERRCODE = '22023', COLUMN = 'selection', MESSAGE = format(
            'selection %s has %s: they cannot be %s', s.id, replace(s.kind, '_', ' '), CASE kind
            WHEN 'retry' THEN 'retried' WHEN 'repair' THEN 'repaired' WHEN 'cancel' THEN 'canceled'
            WHEN 'purge' THEN 'purged'
            ELSE 'redelivered' END);
    ELSIF topic IS NOT NULL AND subscription IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023', COLUMN = 'subscription',
            MESSAGE = 'subscription is required with topic';
    ELSIF subscription IS NOT NULL THEN
        IF topic IS NULL THEN
            RAISE EXCEPTION USING ERRCODE = '22023', COLUMN = 'topic', MESSAGE = 'topic is required with subscription';
        END IF;
        o.target_id := postrider_internal.redelivery_target(topic, subscription);
    END IF;
    o.kind := act_on_selection.kind;
    o.filter := '{}';
    o.topic := act_on_selection.topic;
    o.subscription := act_on_selection.subscription;
    o.selection_id := s.id;
    o.again := act_on_selection.again;
    o.patch := act_on_selection.patch;
    o.paths := to_jsonb(act_on_selection.paths);
    o.include_unchanged := act_on_selection.include_unchanged;
    o.rate_per_second := act_on_selection.rate_per_second;
    o.matched := s.count;
    RETURN postrider_internal.start_operation(o, actor, address);
END $$;

-- The next items of a selection, up to a number and a size of bodies.
CREATE FUNCTION postrider_internal.next_items(selection uuid, after integer, most integer, bytes bigint)
RETURNS SETOF postrider_internal.selection_items LANGUAGE sql STABLE AS $$
SELECT i.selection_id, i.position, i.dead_letter_id, i.delivery_id
  FROM (SELECT n.*, sum(coalesce(octet_length(l.body), 0)) OVER (ORDER BY n.position)
                   - coalesce(octet_length(l.body), 0) AS before
          FROM (SELECT * FROM postrider_internal.selection_items n
                 WHERE n.selection_id = selection AND n.position > after
                 ORDER BY n.position LIMIT most) n
          LEFT JOIN postrider_internal.dead_letters l ON l.id = n.dead_letter_id) i
 WHERE i.before < bytes ORDER BY i.position $$;

-- One step of an operation on a selection: acts on the next items, up to a number and a size of bodies.
CREATE FUNCTION postrider_internal.step_selection(operation uuid, most integer, bytes bigint, OUT taken integer,
    OUT done bigint, OUT skipped bigint, OUT failed bigint, OUT error text, OUT reached_position integer,
    OUT last boolean) LANGUAGE plpgsql SET client_min_messages = warning AS $$
DECLARE
    o postrider_internal.operations;
    items postrider_internal.operation_results[];
BEGIN
    SELECT p.* INTO o FROM postrider_internal.operations p WHERE p.id = operation;
    items := ARRAY (SELECT ROW (o.id, i.position, i.dead_letter_id, i.delivery_id, NULL)::
        postrider_internal.operation_results
          FROM postrider_internal.next_items(o.selection_id, o.cursor_position, most, bytes) i);
    items := ARRAY (SELECT ROW (i.operation_id, i.position, i.dead_letter_id, i.delivery_id, r.result)::
        postrider_internal.operation_results
          FROM postrider_internal.act_on_items(o, items) r JOIN unnest(items) i ON i.position = r.position);
    SELECT * INTO taken, done, skipped, failed, error, reached_position, last
      FROM postrider_internal.note_results(o, items);
END $$;

-- Stores the results of a step's items and counts them. The result of what was done is NULL.
CREATE FUNCTION postrider_internal.note_results(o postrider_internal.operations,
    items postrider_internal.operation_results[], OUT taken integer, OUT done bigint, OUT skipped bigint,
    OUT failed bigint, OUT error text, OUT reached_position integer, OUT last boolean) LANGUAGE plpgsql AS $$
BEGIN
    WITH results AS MATERIALIZED (
        SELECT * FROM unnest(items)
    ), stored AS (
        INSERT INTO postrider_internal.operation_results SELECT * FROM results r WHERE r.result IS NOT NULL
    )
    SELECT count(*), count(*) FILTER (WHERE r.result IS NULL),
           count(*) FILTER (WHERE postrider_internal.is_skipped(r.result)), max(r.position),
           (array_agg(format('%s: %s', coalesce('dead letter ' || r.dead_letter_id, 'delivery ' || r.delivery_id),
               -- an erasure finds results, not this text
               CASE WHEN r.result LIKE 'invalid: %' THEN 'the edited event is invalid'
                    ELSE postrider_internal.result_message(r.result) END) ORDER BY r.position)
               FILTER (WHERE NOT postrider_internal.is_skipped(r.result)))[1]
      INTO taken, done, skipped, reached_position, error FROM results r;
    failed := taken - done - skipped;
    last := coalesce(reached_position, 0) >= o.matched OR taken = 0;
END $$;

-- Acts on items of a selection. result is NULL for what was done, or why nothing was.
CREATE FUNCTION postrider_internal.act_on_items(o postrider_internal.operations,
    items postrider_internal.operation_results[]) RETURNS TABLE ("position" integer, result text)
    LANGUAGE plpgsql AS $$
DECLARE
    ids uuid[] := ARRAY (SELECT i.dead_letter_id FROM unnest(items) i WHERE i.dead_letter_id IS NOT NULL);
    deliveries bigint[] := ARRAY (SELECT i.delivery_id FROM unnest(items) i WHERE i.delivery_id IS NOT NULL);
BEGIN
    CASE o.kind
    WHEN 'redeliver' THEN
        RETURN QUERY SELECT i.position, CASE WHEN r.letter IS NULL THEN 'missing' ELSE r.problem END
          FROM unnest(items) i
          LEFT JOIN postrider_internal.redeliver_dead_letters(ids, NULL, NULL, o.target_id,
              CASE WHEN o.again THEN o.created_at END, o.id) r ON r.letter = i.dead_letter_id;
    WHEN 'purge' THEN
        PERFORM FROM postrider_internal.dead_letters l WHERE l.id = ANY (ids) ORDER BY l.id FOR UPDATE;
        RETURN QUERY WITH gone AS (DELETE FROM postrider_internal.dead_letters l WHERE l.id = ANY (ids) RETURNING l.id)
        SELECT i.position, CASE WHEN g.id IS NULL THEN 'missing' END
          FROM unnest(items) i LEFT JOIN gone g ON g.id = i.dead_letter_id;
    WHEN 'retry', 'cancel' THEN
        PERFORM postrider_internal.lock_deliveries(deliveries);
        RETURN QUERY SELECT i.position, postrider_internal.try_delivery(i.delivery_id, o.kind) FROM unnest(items) i;
    END CASE;
END $$;

-- Locks deliveries with their jobs and batches in the order in which all others lock them. Without it, a step that
-- takes one delivery after the other could deadlock with the recorder.
CREATE FUNCTION postrider_internal.lock_deliveries(ids bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM postrider_internal.river_job j WHERE j.id = ANY (ARRAY (
        SELECT coalesce(d.job_id, b.job_id) FROM postrider_internal.deliveries d
          LEFT JOIN postrider_internal.batches b ON b.id = d.batch_id WHERE d.id = ANY (ids))) ORDER BY j.id FOR UPDATE;
    PERFORM FROM postrider_internal.batches b WHERE b.id = ANY (ARRAY (
        SELECT d.batch_id FROM postrider_internal.deliveries d WHERE d.id = ANY (ids))) ORDER BY b.id FOR UPDATE;
    PERFORM FROM postrider_internal.deliveries d WHERE d.id = ANY (ids) ORDER BY d.id FOR UPDATE;
END $$;

-- Retries or cancels one delivery. A rejection becomes the result and does not end the step; the constraint's name says
-- which.
CREATE FUNCTION postrider_internal.try_delivery(delivery bigint, kind text) RETURNS text LANGUAGE plpgsql AS $$
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
        RETURN 'missing';
    WHEN object_not_in_prerequisite_state THEN
        GET STACKED DIAGNOSTICS problem = CONSTRAINT_NAME;
        IF problem = '' THEN
            RAISE;
        END IF;
        RETURN problem;
END $$;

-- Removes up to a number of items of selections that have expired and that no running operation uses. Returns whether
-- there may be more.
CREATE FUNCTION postrider_internal.clean_selections(most integer) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    ended uuid;
    removed bigint;
BEGIN
    SELECT s.id INTO ended FROM postrider_internal.selections s WHERE s.expires_at <= now() AND NOT EXISTS (
        SELECT FROM postrider_internal.operations o WHERE o.selection_id = s.id AND o.state = 'running')
     ORDER BY s.expires_at LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM postrider_internal.selection_items i WHERE i.selection_id = ended AND i.position = ANY (ARRAY (
        SELECT n.position FROM postrider_internal.selection_items n WHERE n.selection_id = ended LIMIT most));
    GET DIAGNOSTICS removed = ROW_COUNT;
    IF removed < most THEN
        DELETE FROM postrider_internal.selections s WHERE s.id = ended;
    END IF;
    RETURN true;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION postrider_internal.clean_selections, postrider_internal.try_delivery, postrider_internal.lock_deliveries,
    postrider_internal.act_on_items, postrider_internal.note_results, postrider_internal.step_selection,
    postrider_internal.next_items, postrider_internal.act_on_selection,
    postrider_internal.find_selection, postrider_internal.add_selection, postrider_internal.reject_selection,
    postrider_internal.select_dead_letters;
DROP VIEW postrider.operation_results;
DROP FUNCTION postrider_internal.result_message, postrider_internal.is_skipped;
DROP TABLE postrider_internal.operation_results, postrider_internal.selection_items, postrider_internal.selections;
