-- +goose Up
-- The dead letters that a filter matches: a page of them, and how many.

-- +goose StatementBegin
-- How the dead letters that a filter matches are found. few: an index has just them. ordered: an index has them in
-- order of time, with their state. data: the index of the data has them, without an order. scan: in no index.
CREATE FUNCTION postrider_internal.search_method(filter jsonb) RETURNS text LANGUAGE sql STABLE BEGIN ATOMIC
WITH conditions AS (
    SELECT c ->> 'field' AS field, c ->> 'op' AS op, jsonb_typeof(c -> 'value') IN ('object', 'array') AS is_document
      FROM jsonb_array_elements(filter -> 'match') c
), members AS (
    SELECT k AS name FROM jsonb_object_keys(filter) k
     WHERE k NOT IN ('match', 'state', 'dead_lettered_from', 'dead_lettered_until')
       AND NOT (k = 'last_status' AND filter ->> k ~ '^0(\.0*)?$')
     UNION ALL
    SELECT CASE WHEN op = '=' AND field = 'id' THEN 'event_id' WHEN op = '=' AND field = 'type' THEN 'event_type'
                WHEN field ~ '^data' AND (op = '=' OR op = ':' AND is_document) THEN 'data' ELSE 'other' END
      FROM conditions
     UNION ALL
    SELECT 'other' WHERE filter ->> 'last_status' ~ '^0(\.0*)?$'
), names AS (SELECT ARRAY (SELECT DISTINCT name FROM members ORDER BY 1) AS list)
SELECT CASE WHEN list && '{event_id,dead_letter_ids}' THEN 'few'
            WHEN 'data' = ANY (list) THEN 'data'
            WHEN list IN ('{}', '{reason}', '{event_type}', '{last_status}', '{subscription,topic}') THEN 'ordered'
            ELSE 'scan' END FROM names;
END;

-- The position of the last dead letter of the next step of a search, or nothing if no more than that many are left. If
-- a filter names an event, or a topic with its event subscription, an index has exactly those. A step of NULL has no
-- end.
CREATE FUNCTION postrider_internal.dead_letter_edge(filter jsonb, after_at timestamptz, after_id uuid,
    ascending boolean, until timestamptz, step integer, OUT at timestamptz, OUT id uuid)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    first timestamptz := coalesce(postrider_internal.envelope_time('filter.dead_lettered_from',
        filter ->> 'dead_lettered_from'), '-infinity');
    past timestamptz := least(until, postrider_internal.envelope_time('filter.dead_lettered_until',
        filter ->> 'dead_lettered_until'));
BEGIN
    IF step IS NULL OR filter ? 'dead_letter_ids' THEN
        RETURN;
    END IF;
    EXECUTE format('SELECT l.dead_lettered_at, l.id FROM postrider_internal.dead_letters l
         WHERE (l.dead_lettered_at, l.id) %1$s ($1, $2) AND l.dead_lettered_at BETWEEN $3 AND $4 AND %2$s
         ORDER BY l.dead_lettered_at %3$s, l.id %3$s OFFSET $5 LIMIT 1', CASE WHEN ascending THEN '>' ELSE '<' END,
        CASE WHEN filter ? 'event_id' THEN format('l.event_id = %L', filter ->> 'event_id')
             WHEN filter ?& '{topic,subscription}' THEN format('l.topic = %L AND l.subscription = %L',
            filter ->> 'topic', filter ->> 'subscription') ELSE 'true' END,
        CASE WHEN ascending THEN 'ASC' ELSE 'DESC' END)
       INTO at, id USING CASE WHEN ascending THEN greatest(after_at, first) ELSE least(after_at, past) END,
           CASE WHEN ascending AND after_at < first THEN '00000000-0000-0000-0000-000000000000'
                WHEN NOT ascending AND after_at > past THEN 'ffffffff-ffff-ffff-ffff-ffffffffffff'
                ELSE after_id END, first, past, step - 1;
END $$;

-- The conditions on the dead letters of one step: those after a position, $1 and $2, up to its edge, $3 and $4. BETWEEN
-- repeats the bounds for the planner, which would expect a third of the table without it.
CREATE FUNCTION postrider_internal.step_condition(condition text, ascending boolean) RETURNS text LANGUAGE sql
    IMMUTABLE
RETURN CASE WHEN ascending THEN '(dead_lettered_at, dead_letter_id) > ($1, $2) AND (dead_lettered_at, dead_letter_id) '
        '<= (coalesce($3, ''infinity''), coalesce($4, ''ffffffff-ffff-ffff-ffff-ffffffffffff'')) AND '
        'dead_lettered_at BETWEEN $1 AND coalesce($3, ''infinity'') AND '
    ELSE '(dead_lettered_at, dead_letter_id) < ($1, $2) AND (dead_lettered_at, dead_letter_id) >= '
        '(coalesce($3, ''-infinity''), coalesce($4, ''00000000-0000-0000-0000-000000000000'')) AND '
        'dead_lettered_at BETWEEN coalesce($3, ''-infinity'') AND $1 AND ' END || condition;

-- The dead letters of one step that match, in order, up to a number.
CREATE FUNCTION postrider_internal.scan_step(condition text, from_at timestamptz, from_id uuid, to_at timestamptz,
    to_id uuid, ascending boolean, most integer) RETURNS uuid[] LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found uuid[];
BEGIN
    EXECUTE format('SELECT array_agg(id) FROM (SELECT dead_letter_id AS id FROM postrider.dead_letters WHERE %1$s
        ORDER BY dead_lettered_at %2$s, dead_letter_id %2$s LIMIT $5) f',
        postrider_internal.step_condition(condition, ascending), CASE WHEN ascending THEN 'ASC' ELSE 'DESC' END)
       INTO found USING from_at, from_id, to_at, to_id, most;
    RETURN coalesce(found, '{}');
END $$;

-- The same through the index of the data; NULL if more than a limit match. PostgreSQL would rather walk along the time:
-- it does not know how many match, nor that all of them may be old.
CREATE FUNCTION postrider_internal.data_step(condition text, from_at timestamptz, from_id uuid, to_at timestamptz,
    to_id uuid, ascending boolean, most integer) RETURNS uuid[] LANGUAGE plpgsql STABLE
    SET enable_seqscan = off SET enable_indexscan = off SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found uuid[];
BEGIN
    EXECUTE format('WITH f AS MATERIALIZED (SELECT dead_letter_id AS id, dead_lettered_at AS at
          FROM postrider.dead_letters WHERE %1$s LIMIT $5 + 1)
        SELECT array_agg(id ORDER BY at %2$s, id %2$s) FROM f',
        postrider_internal.step_condition(condition, ascending), CASE WHEN ascending THEN 'ASC' ELSE 'DESC' END)
       INTO found USING from_at, from_id, to_at, to_id, most;
    RETURN CASE WHEN cardinality(found) > most THEN NULL ELSE coalesce(found, '{}') END;
END $$;

-- The size of the next step, by what the last one took: a step reads the bodies, which may be large.
CREATE FUNCTION postrider_internal.next_step(step integer, took interval) RETURNS integer LANGUAGE sql IMMUTABLE
RETURN CASE WHEN took < '100 ms' THEN least(step * 2, 50000) WHEN took > '400 ms' THEN greatest(step / 4, 50)
            ELSE step END;

-- Finds dead letters that a filter matches, after a position: newest first, or ascending. It ends with the list
-- (reached_at is NULL), with most of them found, after the time limit or after scan_limit rows; reached_at and
-- reached_id are then where to continue. With enough of them it stops after 50 ms, or at once if the index of the data
-- has them. condition is the filter's match in SQL.
--
-- A frequent value is found among the newest. A rare one is found through the index of the data, which has to parse
-- each dead letter again: so at most 1,000 in one step. For other values each step is a longer time, with both indexes.
CREATE FUNCTION postrider_internal.find_dead_letters(filter jsonb, after_at timestamptz, after_id uuid,
    ascending boolean, enough integer, most integer, scan_limit integer, time_limit interval,
    OUT ids uuid[], OUT scanned bigint, OUT reached_at timestamptz, OUT reached_id uuid, OUT condition text)
    LANGUAGE plpgsql STABLE SET jit = off SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    conditions text := postrider_internal.dead_letter_condition(filter);
    began timestamptz := clock_timestamp();
    began_step timestamptz;
    method text;
    step integer;
    size integer;
    steps integer := 0;
    edge record;
    found uuid[];
BEGIN
    condition := postrider_internal.match_conditions(filter -> 'match');
    method := postrider_internal.search_method(filter);
    step := CASE WHEN method = 'data' THEN 500 WHEN method <> 'scan' THEN NULL WHEN filter ? 'match' THEN 250
        ELSE least(20000, scan_limit) END;
    ids := '{}';
    scanned := 0;
    reached_at := coalesce(after_at, CASE WHEN ascending THEN '-infinity' ELSE 'infinity' END::timestamptz);
    reached_id := coalesce(after_id, '00000000-0000-0000-0000-000000000000');
    LOOP
        began_step := clock_timestamp();
        steps := steps + 1;
        size := step;
        SELECT e.at, e.id INTO edge FROM postrider_internal.dead_letter_edge(filter, reached_at, reached_id, ascending,
            'infinity',
            CASE WHEN method = 'data' AND steps = 2 AND cardinality(ids) < enough THEN NULL ELSE step END) e;
        IF method = 'data' AND steps > 1 AND cardinality(ids) < enough THEN
            found := postrider_internal.data_step(conditions, reached_at, reached_id, edge.at, edge.id, ascending,
                1000);
            IF found IS NULL THEN
                step := CASE WHEN steps = 2 THEN 16000 ELSE greatest(step / 8, 500) END;
                CONTINUE;
            END IF;
            step := least(step * 4, 50000000);
        ELSE
            found := postrider_internal.scan_step(conditions, reached_at, reached_id, edge.at, edge.id, ascending,
                most - cardinality(ids));
            step := CASE WHEN method = 'scan' AND filter ? 'match'
                THEN postrider_internal.next_step(step, clock_timestamp() - began_step) ELSE step END;
        END IF;
        ids := ids || found;
        reached_at := edge.at;
        reached_id := edge.id;
        IF cardinality(ids) >= most THEN
            ids := ids[:most];
            SELECT l.dead_lettered_at, l.id INTO reached_at, reached_id FROM postrider_internal.dead_letters l
             WHERE l.id = ids[most];
        END IF;
        scanned := scanned + CASE WHEN edge.at IS NOT NULL THEN size ELSE 0 END;
        EXIT WHEN edge.at IS NULL OR cardinality(ids) >= most OR scanned >= scan_limit
            OR cardinality(ids) >= enough AND clock_timestamp() - began > '50 ms'
            OR clock_timestamp() - began > time_limit;
    END LOOP;
END $$;

-- The values that the newest dead letters that a filter matches have in common, the top ones of each facet: those with
-- these ids, or up to sample ones among the newest scan_limit. Row all has their number; its name is partial if there
-- may be more.
CREATE FUNCTION postrider_internal.dead_letter_facets(filter jsonb, ids uuid[], sample integer, scan_limit integer,
    top integer) RETURNS TABLE (facet text, name text, count bigint) LANGUAGE plpgsql STABLE SET jit = off
    SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO' AS $$
DECLARE
    edge record;
BEGIN
    SELECT e.at, e.id INTO edge FROM postrider_internal.dead_letter_edge(filter, 'infinity',
        '00000000-0000-0000-0000-000000000000', false, 'infinity', CASE WHEN ids IS NULL
        AND postrider_internal.search_method(filter) = 'scan' THEN scan_limit END) e;
    RETURN QUERY EXECUTE format('WITH found AS MATERIALIZED (
        SELECT reason, coalesce(last_outcome, %2$L) AS outcome, coalesce(last_status, 0) AS status, topic, subscription,
               (dead_lettered_at AT TIME ZONE %3$L)::date AS day
          FROM postrider.dead_letters WHERE %1$s
         ORDER BY dead_lettered_at DESC
         LIMIT $5
    ), grouped AS (
        SELECT CASE WHEN grouping(reason) = 0 THEN %4$L
                    WHEN grouping(outcome) = 0 THEN %5$L
                    WHEN grouping(status) = 0 THEN %6$L
                    WHEN grouping(topic, subscription) = 0 THEN %7$L
                    WHEN grouping(day) = 0 THEN %8$L
                    ELSE %9$L END AS facet,
               coalesce(reason, outcome, status::text, topic || %10$L || subscription, day::text, $7) AS name,
               count(*) AS count
          FROM found
         GROUP BY GROUPING SETS ((reason), (outcome), (status), (topic, subscription), (day), ())
    )
    SELECT r.facet, r.name, r.count
      FROM (SELECT *, row_number() OVER (PARTITION BY g.facet ORDER BY g.count DESC, g.name) AS place FROM grouped g) r
     WHERE r.place <= $6
     ORDER BY r.facet, CASE r.facet WHEN %8$L THEN r.name END DESC, r.place',
        CASE WHEN ids IS NULL THEN postrider_internal.step_condition(
            postrider_internal.dead_letter_condition(filter), false) ELSE 'dead_letter_id = ANY ($8)' END,
        '', 'UTC', 'reason', 'outcome', 'status', 'subscription', 'day', 'all', '/')
      USING 'infinity'::timestamptz, '00000000-0000-0000-0000-000000000000'::uuid, edge.at, edge.id, sample, top,
          CASE WHEN edge.at IS NULL THEN '' ELSE 'partial' END, ids;
END $$;

-- What a count reads: the index that has all the filter needs, or the table.
CREATE FUNCTION postrider_internal.scanned_for(filter jsonb) RETURNS regclass LANGUAGE sql STABLE
RETURN ('postrider_internal.dead_letters' || CASE ARRAY (SELECT k FROM jsonb_object_keys(filter) k
        WHERE k NOT IN ('dead_lettered_from', 'dead_lettered_until', 'state') ORDER BY k)
    WHEN '{}' THEN '_time_idx' WHEN '{topic}' THEN '_name_idx' WHEN '{subscription,topic}' THEN '_name_idx'
    WHEN '{reason}' THEN '_reason_idx' WHEN '{last_status}' THEN '_status_idx' WHEN '{event_type}' THEN '_type_idx'
    ELSE '' END)::regclass;

-- Whether one scan, without steps, takes about a second at most.
CREATE FUNCTION postrider_internal.few_dead_letters(filter jsonb) RETURNS boolean LANGUAGE sql STABLE
RETURN NOT filter ? 'match'
    AND pg_relation_size(postrider_internal.scanned_for(filter)) < 256 * 1024 * 1024;

-- Counts the dead letters that a filter matches until the timeout, which it checks after each step unless there are
-- few.
CREATE FUNCTION postrider_internal.measure_dead_letters(filter jsonb, until timestamptz, timeout interval,
    OUT matched bigint, OUT at_least boolean) LANGUAGE plpgsql STABLE SET jit = off
    SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO' AS $$
DECLARE
    began timestamptz := clock_timestamp();
    began_step timestamptz;
    count text := format('SELECT count(*) FROM postrider.dead_letters WHERE '
        'dead_lettered_at <= %L AND ', until) || postrider_internal.step_condition(
        postrider_internal.dead_letter_condition(filter), true);
    reached_at timestamptz := '-infinity';
    reached_id uuid := '00000000-0000-0000-0000-000000000000';
    step integer := CASE WHEN postrider_internal.few_dead_letters(filter) THEN NULL
        WHEN postrider_internal.search_method(filter) = 'data' THEN 50000 WHEN filter ? 'match' THEN 250 ELSE 20000 END;
    edge record;
    n bigint;
BEGIN
    matched := 0;
    LOOP
        began_step := clock_timestamp();
        SELECT e.at, e.id INTO edge FROM postrider_internal.dead_letter_edge(filter, reached_at, reached_id, true,
            until, step) e;
        EXECUTE count INTO n USING reached_at, reached_id, edge.at, edge.id;
        matched := matched + n;
        at_least := edge.at IS NOT NULL;
        EXIT WHEN NOT at_least OR clock_timestamp() - began > timeout;
        reached_at := edge.at;
        reached_id := edge.id;
        step := CASE WHEN filter ? 'match' THEN postrider_internal.next_step(step, clock_timestamp() - began_step)
            ELSE step END;
    END LOOP;
END $$;

-- Fails after the timeout instead of returning a partial count: a caller would take it for the whole number.
CREATE FUNCTION postrider_internal.count_to_the_end(what text, counted bigint, at_least boolean, timeout interval)
RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF at_least THEN
        RAISE EXCEPTION USING ERRCODE = '57014',
            MESSAGE = format('counting was stopped after %s seconds: there are at least %s %s', extract(epoch
            FROM timeout)::integer, counted, what),
            HINT = 'Narrow it down, by time for example.';
    END IF;
    RETURN counted;
END $$;

CREATE FUNCTION postrider_internal.count_dead_letters(filter jsonb, timeout interval) RETURNS bigint LANGUAGE sql
    STABLE BEGIN ATOMIC
SELECT postrider_internal.count_to_the_end('dead letters that match', c.matched, c.at_least, timeout)
FROM postrider_internal.measure_dead_letters(filter, 'infinity', timeout) c;
END;

CREATE FUNCTION postrider.count_dead_letters(filter jsonb) RETURNS bigint
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN postrider_internal.count_dead_letters($1, '30 seconds');
-- +goose StatementEnd

REVOKE EXECUTE ON FUNCTION postrider.count_dead_letters(jsonb) FROM PUBLIC;
COMMENT ON FUNCTION postrider.count_dead_letters(jsonb) IS
    'Returns how many dead letters a filter of redeliver_all(), resolve_all() or purge_all() matches now. A filter is '
    'a JSON object; all its members must match, and {} matches every dead letter: topic, subscription, reason, '
    'last_outcome, '
    'last_status (0: without a response), min_attempts, event_id, event_type, subject, subject_prefix, source, '
    'dead_lettered_from (included), dead_lettered_until (excluded), state (open, redelivered or resolved), '
    'dead_letter_ids (an array of up to 10,000), match. Times are RFC 3339, such as 2026-11-23T10:00:00Z. If counting '
    'takes more than 30 s, an error has the count so far.

match is an array of up to 20 conditions such as {"field": "data.order.id", "op": "=", "value": 42}; all must match. '
    'Fields: a path in data, subject, type, id, source, error, response, and text for error or response. In a path, '
    'digits are a position in an array, and a key may be quoted: data.items.0."a.b". Operators: = != < <= > >=, ~ and '
    '!~ for a regular expression, and : for a text that is part of it, in upper or lower case of any alphabet; with : '
    'an object or an array is contained as with @>. Numbers compare as numbers, texts by their bytes, so RFC 3339 '
    'times of one offset by time. '
    'A field that is missing matches no operator, != and !~ included. Equality and containment in data use an index; '
    'other conditions scan.';

-- +goose Down
DROP FUNCTION postrider.count_dead_letters, postrider_internal.count_dead_letters, postrider_internal.count_to_the_end,
    postrider_internal.measure_dead_letters, postrider_internal.few_dead_letters, postrider_internal.scanned_for,
    postrider_internal.dead_letter_facets, postrider_internal.find_dead_letters, postrider_internal.next_step,
    postrider_internal.data_step, postrider_internal.scan_step, postrider_internal.step_condition,
    postrider_internal.dead_letter_edge, postrider_internal.search_method;
