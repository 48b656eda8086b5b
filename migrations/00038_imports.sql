-- +goose Up
-- Imports: dead letters that another system has written to files become dead letters here. Such a dead letter has no
-- delivery. It is redelivered like one whose event is no longer kept.

-- A dead letter of a file, as package event reads it.
CREATE TYPE postrider_internal.imported_dead_letter AS (
    imported_from text, imported_index integer, subscription text, schema text, event postrider_internal.envelope,
    reason text, attempts integer, last_outcome text, last_status integer, published_at timestamptz,
    last_attempt_at timestamptz
);

-- +goose StatementBegin
-- Imports dead letters of a topic, all or none. Returns for each the result and, if it is stored, its id, in order:
-- imported: it is new; already_imported: this place of the file, or an event of this id and source for the event
-- subscription, was imported before; conflict: another event was imported from this place of the file; not_found: the
-- topic has no such event subscription. With conflict or not_found, and with dry_run, nothing is stored.
--
-- The unique indexes decide between two imports at once. A deletion of the event subscription waits.
--
-- dead_lettered_at is the time of the import: retention counts from it.
CREATE FUNCTION postrider_internal.import_dead_letters(topic text, dry_run boolean,
    letters postrider_internal.imported_dead_letter[], actor text, address text)
    RETURNS TABLE (result text, dead_letter_id uuid) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    t record;
    at timestamptz := clock_timestamp();
    results text[];
    ids uuid[];
BEGIN
    SELECT x.id, x.name INTO t FROM postrider_internal.topics x WHERE x.name = import_dead_letters.topic
        AND x.deleted_at IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'P0002', MESSAGE = format('topic "%s" does not exist', topic),
            COLUMN = 'topic', HINT = 'SELECT topic FROM postrider.topics lists those there are.';
    END IF;
    PERFORM postrider_internal.reject_own_topic(topic);
    PERFORM postrider_internal.commit_soon();
    PERFORM FROM postrider_internal.event_subscriptions s
      WHERE s.topic_id = t.id AND s.deleted_at IS NULL
        AND s.name IN (SELECT g.subscription FROM unnest(letters) g) ORDER BY s.id FOR SHARE;
    WITH given AS MATERIALIZED (
        SELECT g.*, s.id AS subscription_id,
               row_number() OVER (PARTITION BY s.id, (g.event).event_id, (g.event).source ORDER BY g.place) AS copy
          FROM unnest(letters) WITH ORDINALITY AS g(imported_from, imported_index, subscription, schema, event, reason,
              attempts, last_outcome, last_status, published_at, last_attempt_at, place)
          LEFT JOIN postrider_internal.event_subscriptions s ON s.topic_id = t.id AND s.name = g.subscription
           AND s.deleted_at IS NULL
    ), checked AS (
        SELECT g.place, CASE WHEN g.subscription_id IS NULL THEN 'not_found'
                    WHEN f.event_id <> (g.event).event_id OR f.source <> (g.event).source THEN 'conflict'
                    WHEN f.id IS NOT NULL OR e.id IS NOT NULL OR g.copy > 1 THEN 'already_imported'
                    ELSE 'imported' END AS result, coalesce(f.id, e.id) AS id
          FROM given g
          LEFT JOIN postrider_internal.dead_letters f ON f.topic_id = t.id AND f.imported_from = g.imported_from
           AND f.imported_index = g.imported_index
          LEFT JOIN postrider_internal.dead_letters e ON e.imported_from IS NOT NULL
           AND e.subscription_id = g.subscription_id AND e.event_id = (g.event).event_id
           AND e.source = (g.event).source
    )
    SELECT array_agg(c.result ORDER BY c.place), array_agg(c.id ORDER BY c.place) INTO results, ids FROM checked c;
    IF NOT dry_run AND 'imported' = ANY (results) AND NOT results && '{conflict,not_found}' THEN
        WITH created AS (
            INSERT INTO postrider_internal.dead_letters (id, dead_lettered_at, imported_from, imported_index,
                subscription_id, topic_id, topic, subscription, endpoint_base_url, reason, attempts, last_outcome,
                last_status, last_attempt_at, time_to_live_since, published_at, event_time, event_uuid, event_id,
                event_type, subject, source, data_version, schema, traceparent, tracestate, retry_policy, body)
            SELECT postrider_internal.new_uuid(), at, g.imported_from, g.imported_index, s.id, t.id, t.name, s.name,
                   '', g.reason, g.attempts, g.last_outcome, g.last_status, g.last_attempt_at, p.began, p.began,
                   (g.event).event_time, postrider_internal.new_uuid(), (g.event).event_id, (g.event).event_type,
                   (g.event).subject, (g.event).source, (g.event).data_version, g.schema, (g.event).traceparent,
                   (g.event).tracestate, '', (g.event).body
              FROM unnest(letters) WITH ORDINALITY AS g(imported_from, imported_index, subscription, schema, event,
                  reason, attempts, last_outcome, last_status, published_at, last_attempt_at, place)
              JOIN postrider_internal.event_subscriptions s ON s.topic_id = t.id AND s.name = g.subscription
               AND s.deleted_at IS NULL
             CROSS JOIN LATERAL (
                   SELECT coalesce(g.published_at, (g.event).event_time, g.last_attempt_at, at) AS began) p
             WHERE results[g.place] = 'imported'
             ORDER BY g.place
                ON CONFLICT DO NOTHING
            RETURNING id, dead_letters.imported_from, dead_letters.imported_index
        ), placed AS (
            SELECT g.place, c.id FROM unnest(letters) WITH ORDINALITY AS g(imported_from, imported_index, subscription,
                schema, event, reason, attempts, last_outcome, last_status, published_at, last_attempt_at, place)
              LEFT JOIN created c ON c.imported_from = g.imported_from AND c.imported_index = g.imported_index
        )
        SELECT array_agg(CASE WHEN results[p.place] = 'imported' AND p.id IS NULL THEN 'already_imported'
                   ELSE results[p.place] END ORDER BY p.place), array_agg(coalesce(p.id, ids[p.place]) ORDER BY p.place)
          INTO results, ids FROM placed p;
        PERFORM postrider_internal.note_audit(actor, address, 'dead_letters_imported', t.name, NULL,
            jsonb_build_object('deadLetters', (SELECT count(*) FROM unnest(results) r WHERE r = 'imported')));
    END IF;
    RETURN QUERY SELECT * FROM unnest(results, ids);
END $$;
-- +goose StatementEnd

COMMENT ON FUNCTION postrider_internal.import_dead_letters IS
    'Imports dead letters that another system has written to files, all or none, each once.';

-- +goose Down
DROP FUNCTION postrider_internal.import_dead_letters;
DROP TYPE postrider_internal.imported_dead_letter;
