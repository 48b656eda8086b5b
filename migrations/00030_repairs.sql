-- +goose Up
-- Repairs: an operator edits the event of a dead letter and redelivers it. postrider_internal.redeliver_dead_letters
-- stores the edited event and its lineage, and creates its delivery.

-- +goose StatementBegin
-- The changes from one document to another, as a JSON Patch (RFC 6902) of the operations add, remove and replace.
-- Objects are compared member by member, arrays and other values as a whole. NULL if either is NULL.
CREATE FUNCTION postrider_internal.json_patch(before jsonb, after jsonb) RETURNS jsonb LANGUAGE sql
    IMMUTABLE STRICT PARALLEL SAFE AS $$
WITH RECURSIVE pairs (path, old, new, both_objects) AS (
    SELECT '', before, after, jsonb_typeof(before) = 'object' AND jsonb_typeof(after) = 'object'
     WHERE before <> after
     UNION ALL
    SELECT p.path || '/' || replace(replace(m.name, '~', '~0'), '/', '~1'), m.old, m.new,
           jsonb_typeof(m.old) = 'object' AND jsonb_typeof(m.new) = 'object'
      FROM pairs p
     CROSS JOIN LATERAL (
           SELECT coalesce(o.key, n.key) AS name, o.value AS old, n.value AS new
             FROM jsonb_each(CASE WHEN p.both_objects THEN p.old ELSE '{}' END) o
             FULL JOIN jsonb_each(CASE WHEN p.both_objects THEN p.new ELSE '{}' END) n ON n.key = o.key) m
     WHERE p.both_objects AND m.old IS DISTINCT FROM m.new
)
SELECT coalesce(jsonb_agg(
           CASE WHEN p.new IS NULL THEN jsonb_build_object('op', 'remove', 'path', p.path)
                ELSE jsonb_build_object('op', CASE WHEN p.old IS NULL THEN 'add' ELSE 'replace' END, 'path', p.path,
                    'value', p.new) END ORDER BY p.path COLLATE "C"), '[]')
  FROM pairs p WHERE p.both_objects IS NOT TRUE $$;

-- The topic of a dead letter's event: that of the event, or of the delivery if the event is gone.
CREATE FUNCTION postrider_internal.topic_of_event(l postrider_internal.dead_letters) RETURNS postrider_internal.topics
LANGUAGE sql STABLE AS $$
SELECT t.* FROM postrider_internal.topics t
 WHERE t.id = coalesce((SELECT e.topic_id FROM postrider_internal.events e WHERE e.id = l.event_uuid
     AND e.day = l.event_day LIMIT 1), l.topic_id) $$;

-- The topic whose schema and mapping an edited event is read by.
CREATE FUNCTION postrider_internal.topic_of_edit(dead_letter_id uuid, OUT topic text, OUT input_schema text,
    OUT input_schema_mapping jsonb) LANGUAGE plpgsql STABLE AS $$
DECLARE
    l postrider_internal.dead_letters;
    t postrider_internal.topics;
BEGIN
    SELECT d.* INTO l FROM postrider_internal.dead_letters d WHERE d.id = dead_letter_id;
    IF NOT FOUND THEN
        PERFORM postrider_internal.reject_dead_letter(dead_letter_id);
    ELSIF l.erased_at IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = 'erased',
            MESSAGE = format('the event of dead letter %s was erased', dead_letter_id),
            HINT = 'Nothing is left that could be edited; postrider.purge() removes the rest.';
    END IF;
    t := postrider_internal.topic_of_event(l);
    IF t.deleted_at IS NOT NULL OR t.name IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = 'topic_deleted',
            MESSAGE = format('topic "%s" was deleted: an edited event cannot be validated without its topic',
                coalesce(t.name, l.topic)),
            HINT = 'Without an event, postrider.redeliver() delivers the original.';
    ELSIF t.input_schema <> l.schema THEN
        RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = 'schema',
            MESSAGE = format('the event has schema %s, but its topic "%s" has %s: it cannot be edited', l.schema,
                t.name, t.input_schema),
            HINT = 'Without an event, postrider.redeliver() delivers the original.';
    END IF;
    PERFORM postrider_internal.reject_own_topic(t.name);
    topic := t.name;
    input_schema := t.input_schema;
    input_schema_mapping := t.input_schema_mapping;
END $$;

-- Reads an edited event as publishing by SQL reads an event.
CREATE FUNCTION postrider_internal.read_edit(dead_letter_id uuid, event jsonb) RETURNS postrider_internal.envelope
LANGUAGE plpgsql AS $$
DECLARE
    t record;
BEGIN
    SELECT * INTO t FROM postrider_internal.topic_of_edit(dead_letter_id);
    RETURN postrider_internal.read_event(event, 'event', postrider_internal.envelope_rules(t.topic, t.input_schema,
        t.input_schema_mapping), t.input_schema, clock_timestamp());
END $$;

-- The next dead letters of a selection with what their repair needs, up to a number and a size of bodies. problem is
-- why one cannot be repaired, message the same in words; its body is NULL then.
CREATE FUNCTION postrider_internal.next_repairs(selection uuid, after integer, most integer, bytes bigint,
    target bigint, again_before timestamptz)
    RETURNS TABLE ("position" integer, dead_letter_id uuid, problem text, message text, skipped boolean, topic text,
        input_schema text, input_schema_mapping jsonb, body bytea) LANGUAGE sql STABLE AS $$
SELECT i.position, i.dead_letter_id, p.problem, postrider_internal.result_message(p.problem),
       coalesce(postrider_internal.is_skipped(p.problem), false), t.name, t.input_schema, t.input_schema_mapping,
       CASE WHEN p.problem IS NULL THEN l.body END
  FROM postrider_internal.next_items(selection, after, most, bytes) i
  LEFT JOIN postrider_internal.dead_letters l ON l.id = i.dead_letter_id
  LEFT JOIN postrider_internal.event_subscriptions s ON s.id = coalesce(target, l.subscription_id)
  LEFT JOIN LATERAL postrider_internal.topic_of_event(l) t ON true
 CROSS JOIN LATERAL (
       SELECT CASE WHEN l.id IS NULL THEN 'missing' ELSE coalesce(postrider_internal.redelivery_problem(
                  octet_length(l.body), l.schema, l.redelivered_at, again_before, s),
                  CASE WHEN t.id IS NULL OR t.deleted_at IS NOT NULL THEN 'topic_deleted'
                       WHEN t.name = 'postrider.system' THEN 'system_topic'
                       WHEN t.input_schema <> l.schema THEN 'schema' END) END AS problem) p
 ORDER BY i.position $$;

-- One step of a repair of a selection: redelivers the items without a result. An edit without id redelivers the
-- original event.
CREATE FUNCTION postrider_internal.step_repairs(operation uuid, items postrider_internal.operation_results[],
    edits postrider_internal.envelope[], OUT taken integer, OUT done bigint, OUT skipped bigint, OUT failed bigint,
    OUT error text, OUT reached_position integer, OUT last boolean) LANGUAGE plpgsql AS $$
DECLARE
    o postrider_internal.operations;
    ids uuid[];
    edited postrider_internal.envelope[];
BEGIN
    SELECT p.* INTO o FROM postrider_internal.operations p WHERE p.id = operation;
    -- An erasure erases the results that it sees. It has to wait for this step, or this step for it.
    PERFORM FROM postrider_internal.dead_letters l
      WHERE l.id = ANY (ARRAY (SELECT i.dead_letter_id FROM unnest(items) i)) ORDER BY l.id FOR UPDATE;
    SELECT array_agg(i.dead_letter_id ORDER BY i.n),
           array_agg(ROW (e.id, e.event_time, e.event_id, e.event_type, e.subject, e.source, e.data_version,
               e.traceparent, e.tracestate, e.body)::postrider_internal.envelope ORDER BY i.n)
      INTO ids, edited
      FROM unnest(items) WITH ORDINALITY AS i(operation_id, position, dead_letter_id, delivery_id, result, n)
      JOIN unnest(edits) WITH ORDINALITY AS e(id, event_time, event_id, event_type, subject, source, data_version,
          traceparent, tracestate, body, n) ON e.n = i.n
     WHERE i.result IS NULL;
    items := ARRAY (
        SELECT ROW (operation, i.position, i.dead_letter_id, NULL,
                   CASE WHEN i.result IS NULL THEN CASE WHEN r.letter IS NULL THEN 'missing' ELSE r.problem END
                        WHEN l.erased_at IS NOT NULL THEN 'erased'
                        ELSE i.result END)::postrider_internal.operation_results
          FROM unnest(items) i
          LEFT JOIN postrider_internal.dead_letters l ON l.id = i.dead_letter_id
          LEFT JOIN postrider_internal.redeliver_dead_letters(ids, edited, o.started_by, o.target_id,
              CASE WHEN o.again THEN o.created_at END, operation) r ON r.letter = i.dead_letter_id);
    SELECT * INTO taken, done, skipped, failed, error, reached_position, last
      FROM postrider_internal.note_results(o, items);
END $$;

-- Events and all repairs that were edited from them, directly or not.
CREATE FUNCTION postrider_internal.with_repairs(ids uuid[]) RETURNS uuid[] LANGUAGE sql STABLE AS $$
WITH RECURSIVE found (id) AS (
    SELECT unnest(ids)
     UNION
    SELECT r.system_id FROM found f JOIN postrider_internal.repairs r ON r.edited_from = f.id
)
SELECT coalesce(array_agg(f.id), '{}') FROM found f $$;

-- Repairs of events of a topic that had a subject before they were edited, up to a number.
CREATE FUNCTION postrider_internal.repairs_of_subject(topic text, subject text, most integer) RETURNS uuid[]
LANGUAGE sql STABLE AS $$
SELECT ARRAY (SELECT r.system_id FROM postrider_internal.repairs r
               WHERE r.old_subject = repairs_of_subject.subject
                 AND r.topic_id IN (SELECT t.id FROM postrider_internal.topics t
                     WHERE t.name = repairs_of_subject.topic)
               LIMIT most) $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION postrider_internal.repairs_of_subject, postrider_internal.with_repairs,
    postrider_internal.step_repairs, postrider_internal.next_repairs, postrider_internal.read_edit,
    postrider_internal.topic_of_edit, postrider_internal.topic_of_event, postrider_internal.json_patch;
