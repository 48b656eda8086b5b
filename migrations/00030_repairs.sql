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

-- The topic whose schema and mapping an edited event is read by: that of the original event, or of the dead letter if
-- the event is gone.
CREATE FUNCTION postrider_internal.topic_of_edit(dead_letter_id uuid, OUT topic text, OUT input_schema text,
    OUT input_schema_mapping jsonb) LANGUAGE plpgsql STABLE AS $$
DECLARE
    l record;
    t record;
BEGIN
    SELECT d.topic_id, d.topic, d.event_uuid, d.event_day, d.schema, d.erased_at INTO l
      FROM postrider_internal.dead_letters d WHERE d.id = dead_letter_id;
    IF NOT FOUND THEN
        PERFORM postrider_internal.reject_dead_letter(dead_letter_id);
    ELSIF l.erased_at IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = 'erased',
            MESSAGE = format('the event of dead letter %s was erased', dead_letter_id),
            HINT = 'Nothing is left that could be edited; postrider.purge() removes the rest.';
    END IF;
    SELECT p.name, p.input_schema AS schema, p.input_schema_mapping AS mapping, p.deleted_at INTO t
      FROM postrider_internal.topics p
     WHERE p.id = coalesce((SELECT e.topic_id FROM postrider_internal.events e
         WHERE e.id = l.event_uuid AND e.day = l.event_day), l.topic_id);
    IF t.deleted_at IS NOT NULL OR t.name IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = 'topic_deleted',
            MESSAGE = format('topic "%s" was deleted: an edited event cannot be validated without its topic',
                coalesce(t.name, l.topic)),
            HINT = 'Without an event, postrider.redeliver() delivers the original.';
    ELSIF t.schema <> l.schema THEN
        RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = 'schema',
            MESSAGE = format('the event has schema %s, but its topic "%s" has %s: it cannot be edited', l.schema,
                t.name, t.schema),
            HINT = 'Without an event, postrider.redeliver() delivers the original.';
    END IF;
    PERFORM postrider_internal.reject_own_topic(t.name);
    topic := t.name;
    input_schema := t.schema;
    input_schema_mapping := t.mapping;
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
DROP FUNCTION postrider_internal.repairs_of_subject, postrider_internal.with_repairs, postrider_internal.read_edit,
    postrider_internal.topic_of_edit, postrider_internal.json_patch;
