-- +goose Up
-- Repairs: an operator edits the event of a dead letter and redelivers it. postrider_internal.redeliver_dead_letters
-- stores the edited event and its lineage, and creates its delivery.

-- +goose StatementBegin
-- The changes from one document to another, as a JSON merge patch (RFC 7396). Objects are compared member by member,
-- arrays and other values as a whole. A member that is set to null is shown as one that was removed: a merge patch has
-- no other null. NULL if either is NULL.
CREATE FUNCTION postrider_internal.merge_patch(before jsonb, after jsonb) RETURNS jsonb LANGUAGE plpgsql
    IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF jsonb_typeof(before) <> 'object' OR jsonb_typeof(after) <> 'object' THEN
        RETURN after;
    END IF;
    RETURN (SELECT coalesce(jsonb_object_agg(coalesce(o.key, n.key), CASE WHEN n.value IS NULL THEN 'null'
                WHEN o.value IS NULL THEN n.value ELSE postrider_internal.merge_patch(o.value, n.value) END), '{}')
              FROM jsonb_each(before) o FULL JOIN jsonb_each(after) n ON n.key = o.key
             WHERE o.value IS DISTINCT FROM n.value);
END $$;

-- What a merge patch changes, as JSON Pointers, the first ones in order.
CREATE FUNCTION postrider_internal.patch_paths(patch jsonb, most integer) RETURNS jsonb LANGUAGE sql
    IMMUTABLE STRICT PARALLEL SAFE BEGIN ATOMIC
WITH RECURSIVE members (path, value) AS (
    SELECT '', patch
     UNION ALL
    SELECT m.path || '/' || replace(replace(e.key, '~', '~0'), '/', '~1'), e.value
      FROM members m
     CROSS JOIN LATERAL jsonb_each(CASE jsonb_typeof(m.value) WHEN 'object' THEN m.value ELSE '{}' END) e
)
SELECT jsonb_agg(f.path ORDER BY f.path COLLATE "C")
  FROM (SELECT m.path FROM members m WHERE jsonb_typeof(m.value) <> 'object' OR m.value = '{}' AND m.path <> ''
         ORDER BY m.path COLLATE "C" LIMIT most) f;
END;

-- The topic of a dead letter's event: that of the event, or of the delivery if the event is gone.
CREATE FUNCTION postrider_internal.topic_of_event(l postrider_internal.dead_letters) RETURNS postrider_internal.topics
LANGUAGE sql STABLE BEGIN ATOMIC
SELECT t.* FROM postrider_internal.topics t
 WHERE t.id = coalesce((SELECT e.topic_id FROM postrider_internal.events e WHERE e.id = l.event_uuid
     AND e.day = l.event_day LIMIT 1), l.topic_id);
END;

-- Whether the event of a dead letter is read by another schema than its topic's: an imported event may be one that
-- another system converted.
CREATE FUNCTION postrider_internal.has_own_schema(l postrider_internal.dead_letters) RETURNS boolean LANGUAGE sql
STABLE
RETURN l.imported_from IS NOT NULL AND l.schema <> 'CustomEventSchema';

-- As what relay the edited event of a dead letter is read: an imported one names the topic of another system.
CREATE FUNCTION postrider_internal.relay_of_edit(l postrider_internal.dead_letters, t postrider_internal.topics)
RETURNS text LANGUAGE sql IMMUTABLE
RETURN CASE WHEN l.imported_from IS NULL THEN t.relay ELSE 'azure' END;

-- The topic whose schema and mapping an edited event is read by.
CREATE FUNCTION postrider_internal.topic_of_edit(dead_letter_id uuid, OUT topic text, OUT input_schema text,
    OUT input_schema_mapping jsonb, OUT relay text) LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
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
    ELSIF t.input_schema <> l.schema AND NOT postrider_internal.has_own_schema(l) THEN
        RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = 'schema',
            MESSAGE = format('the event has schema %s, but its topic "%s" has %s: it cannot be edited', l.schema,
                t.name, t.input_schema),
            HINT = 'Without an event, postrider.redeliver() delivers the original.';
    END IF;
    PERFORM postrider_internal.reject_own_topic(t.name);
    topic := t.name;
    input_schema := l.schema;
    input_schema_mapping := CASE l.schema WHEN 'CustomEventSchema' THEN t.input_schema_mapping END;
    relay := postrider_internal.relay_of_edit(l, t);
END $$;

-- Reads an edited event as publishing by SQL reads an event.
CREATE FUNCTION postrider_internal.read_edit(dead_letter_id uuid, event jsonb) RETURNS postrider_internal.envelope
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    t record;
BEGIN
    SELECT * INTO t FROM postrider_internal.topic_of_edit(dead_letter_id);
    RETURN postrider_internal.read_event(t.topic, event, 'event', postrider_internal.envelope_rules(t.topic,
        t.input_schema, t.input_schema_mapping, t.relay), t.input_schema, clock_timestamp(), t.relay);
END $$;

-- Dead letters with what their repair needs, in order. problem is why one cannot be repaired, message the same in
-- words; its body is NULL then. Resolved ones are left out unless resolved is true.
CREATE FUNCTION postrider_internal.read_repairs(ids uuid[], target bigint, again_before timestamptz, resolved boolean)
    RETURNS TABLE (dead_letter_id uuid, problem text, message text, topic text, input_schema text,
        input_schema_mapping jsonb, relay text, body bytea) LANGUAGE sql STABLE BEGIN ATOMIC
SELECT l.id, p.problem, postrider_internal.result_message(p.problem), t.name, l.schema,
       CASE l.schema WHEN 'CustomEventSchema' THEN t.input_schema_mapping END, postrider_internal.relay_of_edit(l, t),
       CASE WHEN p.problem IS NULL THEN l.body END
  FROM postrider_internal.dead_letters l
  LEFT JOIN postrider_internal.event_subscriptions s ON s.id = coalesce(target, l.subscription_id)
  LEFT JOIN LATERAL postrider_internal.topic_of_event(l) t ON true
 CROSS JOIN LATERAL (
       SELECT coalesce(CASE WHEN l.resolved_at IS NOT NULL AND NOT resolved THEN 'resolved' END,
                  postrider_internal.redelivery_problem(octet_length(l.body), l.schema, l.redelivered_at,
                  again_before, s),
                  CASE WHEN t.id IS NULL OR t.deleted_at IS NOT NULL THEN 'topic_deleted'
                       WHEN t.name = 'postrider.system' THEN 'system_topic'
                       WHEN t.input_schema <> l.schema AND NOT postrider_internal.has_own_schema(l)
                       THEN 'schema' END) AS problem) p
 WHERE l.id = ANY (ids)
 ORDER BY l.dead_lettered_at, l.id;
END;

-- Events and all repairs that were edited from them, directly or not.
CREATE FUNCTION postrider_internal.with_repairs(ids uuid[]) RETURNS uuid[] LANGUAGE sql STABLE BEGIN ATOMIC
WITH RECURSIVE found (id) AS (
    SELECT unnest(ids)
     UNION
    SELECT r.system_id FROM found f JOIN postrider_internal.repairs r ON r.edited_from = f.id
)
SELECT coalesce(array_agg(f.id), '{}') FROM found f;
END;

-- Repairs of events of a topic that had a subject before they were edited, up to a number.
CREATE FUNCTION postrider_internal.repairs_of_subject(topic text, subject text, most integer) RETURNS uuid[]
LANGUAGE sql STABLE
RETURN ARRAY (SELECT r.system_id FROM postrider_internal.repairs r
               WHERE r.old_subject = repairs_of_subject.subject
                 AND r.topic_id IN (SELECT t.id FROM postrider_internal.topics t
                     WHERE t.name = repairs_of_subject.topic)
               LIMIT most);
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION postrider_internal.repairs_of_subject, postrider_internal.with_repairs,
    postrider_internal.read_repairs, postrider_internal.read_edit, postrider_internal.topic_of_edit,
    postrider_internal.relay_of_edit, postrider_internal.has_own_schema, postrider_internal.topic_of_event,
    postrider_internal.patch_paths, postrider_internal.merge_patch;
