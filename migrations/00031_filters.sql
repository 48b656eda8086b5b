-- +goose Up
-- Filters of dead letters: which ones match. REST, the command line, the dashboard and the SQL functions all use these.

-- +goose StatementBegin
-- Rejects a member of a filter.
CREATE FUNCTION postrider_internal.reject_filter(member text, problem text) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = '22023', COLUMN = member, MESSAGE = format('%s %s', member, problem),
        HINT = CASE WHEN member LIKE 'filter.match%' THEN
            'A condition is {"field": …, "op": …, "value": …}. Fields: data.<path>, subject, type, id, source, error, '
            'response, text. Operators: = != < <= > >= ~ !~ and : (contains).'
            ELSE 'A filter may have topic, subscription, reason, last_outcome, last_status, min_attempts, event_id, '
            'event_type, subject, subject_prefix, source, dead_lettered_from, dead_lettered_until, state, '
            'dead_letter_ids and match.' END;
END $$;

-- Rejects a value of the wrong type.
CREATE FUNCTION postrider_internal.require_type(member text, value jsonb, types text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF coalesce(jsonb_typeof(value) <> ALL (types), true) THEN
        PERFORM postrider_internal.reject_filter(member, CASE WHEN value IS NULL THEN 'is required' ELSE
            format('must be %s, is %s', (SELECT string_agg(CASE t WHEN 'array' THEN 'an array' WHEN 'object'
                THEN 'an object' ELSE 'a ' || t END, ' or ') FROM unnest(types) t),
                postrider_internal.kind_in_words(value)) END);
    END IF;
END $$;

-- The path of a field such as data.items.0.sku: ["items", 0, "sku"]. A number is a position in an array, and a key in
-- quotes is any text.
CREATE FUNCTION postrider_internal.data_path(member text, field text) RETURNS jsonb LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    part text;
    path jsonb := '[]';
BEGIN
    IF length(field) > 1000 THEN
        PERFORM postrider_internal.reject_filter(member, format('must have at most 1000 characters, has %s',
            length(field)));
    ELSIF substr(field, 5) !~ '^(\.("([^"\\[:cntrl:]]|\\["\\])+"|[^."\\[:space:][:cntrl:]]+))*$' THEN
        PERFORM postrider_internal.reject_filter(member, format('must be a path such as data.order.id, '
            'data.items.0.sku or data."a.b", is %s', left(field, 64)));
    END IF;
    FOR part IN SELECT m[1] FROM regexp_matches(substr(field, 5), '\.("(?:[^"\\]|\\.)+"|[^."]+)', 'g') m LOOP
        path := path || jsonb_build_array(CASE WHEN part LIKE '"%' THEN part::jsonb
            WHEN part ~ '^[0-9]{1,9}$' THEN to_jsonb(part::integer) ELSE to_jsonb(part) END);
    END LOOP;
    RETURN path;
END $$;

-- The smallest document that has a value at a path. Data with this value there contains the document.
CREATE FUNCTION postrider_internal.document_with(path jsonb, value jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE
    SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    FOR i IN REVERSE jsonb_array_length(path) - 1 .. 0 LOOP
        value := CASE jsonb_typeof(path -> i) WHEN 'number' THEN jsonb_build_array(value)
            ELSE jsonb_build_object(path ->> i, value) END;
    END LOOP;
    RETURN value;
END $$;

-- Rejects what PostgreSQL cannot match in time: a back reference may take exponential time.
CREATE FUNCTION postrider_internal.check_regexp(member text, given text) RETURNS void LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    IF length(given) > 1000 THEN
        PERFORM postrider_internal.reject_filter(member, format('must have at most 1000 characters, has %s',
            length(given)));
    ELSIF replace(given, '\\', '') ~ '\\[1-9]' THEN
        PERFORM postrider_internal.reject_filter(member, format('must not have a back reference such as \1, is %s',
            left(given, 64)));
    END IF;
    PERFORM '' ~ given;
EXCEPTION WHEN invalid_regular_expression THEN
    PERFORM postrider_internal.reject_filter(member, format('is not a valid regular expression: %s: %s',
        left(given, 64), regexp_replace(SQLERRM, '^invalid regular expression: ', '')));
END $$;

-- The collation that knows the case of letters in all alphabets, however the database was created: ICU's, or from
-- version 17 on PostgreSQL's own. Without them, letter case is what the locale of the database knows.
CREATE FUNCTION postrider_internal.letter_case() RETURNS text LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp BEGIN ATOMIC
SELECT coalesce(min(quote_ident(collname::text)) FILTER (WHERE collname = 'und-x-icu'),
           min(quote_ident(collname::text)), '"default"')
  FROM pg_collation
 WHERE collname IN ('und-x-icu', 'pg_c_utf8') AND collnamespace = 'pg_catalog'::regnamespace;
END;

-- A condition of a filter on a text. Its : compares upper case of lower case, in which all forms of a letter are one,
-- such as the two small sigmas.
CREATE FUNCTION postrider_internal.text_condition(member text, expression text, op text, value jsonb) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    given text := value #>> '{}';
    letters text := postrider_internal.letter_case();
BEGIN
    IF op IN ('~', '!~') THEN
        PERFORM postrider_internal.check_regexp(member, given);
        RETURN format('%s COLLATE %s %s %L', expression, letters, op, given);
    END IF;
    RETURN CASE WHEN op = ':' THEN format('strpos(upper(lower(%s COLLATE %s)), upper(lower(%L COLLATE %2$s))) > 0',
                    expression, letters, given)
                WHEN op IN ('<', '<=', '>', '>=') THEN format('%s COLLATE "C" %s %L', expression, op, given)
                ELSE format('%s %s %L', expression, CASE op WHEN '!=' THEN '<>' ELSE op END, given) END;
END $$;

-- A condition of a filter on a value in the data. The index has what data contains; an operator would also search the
-- index for the other conditions, which it does not have, so those are functions.
CREATE FUNCTION postrider_internal.data_condition(member text, path jsonb, op text, value jsonb) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kind text := jsonb_typeof(value);
    place text := 'strict $' || coalesce((SELECT string_agg(CASE jsonb_typeof(e) WHEN 'number' THEN format('[%s]', e)
        ELSE '.' || e::text END, '' ORDER BY n) FROM jsonb_array_elements(path) WITH ORDINALITY AS p(e, n)), '');
    found text := format('jsonb_path_query_first(data, %L, ''{}'', true)', place);
    contains text := format('data @> %L', postrider_internal.document_with(path, value));
BEGIN
    IF op IN ('<', '<=', '>', '>=') THEN
        PERFORM postrider_internal.require_type(member, value, '{number,string}');
        RETURN format('jsonb_path_match(data, %L, ''{}'', true)', format('%s %s %s', place, op, value));
    ELSIF op IN ('~', '!~') THEN
        PERFORM postrider_internal.require_type(member, value, '{string}');
    ELSIF op = '!=' THEN
        RETURN format('%s <> %L', found, value);
    ELSIF op = '=' THEN
        RETURN contains || CASE WHEN kind IN ('object', 'array') OR path = '[]' OR place LIKE '%]%'
            THEN format(' AND %s = %L', found, value) ELSE '' END;
    ELSIF kind IN ('object', 'array') THEN
        RETURN contains;
    END IF;
    RETURN postrider_internal.text_condition(member, '(' || found || ' #>> ''{}'')', op, value);
END $$;

-- A member of a filter's match as a condition. A field that is missing matches no operator, != and !~ included.
CREATE FUNCTION postrider_internal.match_condition(member text, given jsonb) RETURNS text LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    field text := given ->> 'field';
    value jsonb := given -> 'value';
    wrong text;
    expression text;
BEGIN
    PERFORM postrider_internal.require_type(member, given, '{object}');
    SELECT k INTO wrong FROM jsonb_object_keys(given) k WHERE k NOT IN ('field', 'op', 'value') LIMIT 1;
    IF FOUND THEN
        PERFORM postrider_internal.reject_filter(format('%s.%s', member, left(wrong, 64)),
            'is no member of a condition');
    END IF;
    PERFORM postrider_internal.require_type(member || '.field', given -> 'field', '{string}');
    PERFORM postrider_internal.require_type(member || '.op', given -> 'op', '{string}');
    IF given ->> 'op' NOT IN ('=', '!=', '<', '<=', '>', '>=', '~', '!~', ':') THEN
        PERFORM postrider_internal.reject_filter(member || '.op',
            format('must be one of = != < <= > >= ~ !~ :, is %s', left(given ->> 'op', 64)));
    ELSIF value IS NULL THEN
        PERFORM postrider_internal.reject_filter(member || '.value', 'is required');
    ELSIF postrider_internal.nests_deeper(value::text, 256) THEN -- no event does, and Go reads 10,000 levels of JSON
        PERFORM postrider_internal.reject_filter(member || '.value', 'must not nest deeper than 256 levels');
    ELSIF field = 'data' OR field LIKE 'data.%' THEN
        RETURN postrider_internal.data_condition(member || '.value',
            postrider_internal.data_path(member || '.field', field), given ->> 'op', value);
    END IF;
    expression := CASE field WHEN 'subject' THEN 'subject' WHEN 'type' THEN 'event_type' WHEN 'id' THEN 'event_id'
        WHEN 'source' THEN 'source' WHEN 'error' THEN 'last_error' WHEN 'response' THEN 'last_response'
        WHEN 'text' THEN 'concat_ws('' '', last_error, last_response)' END;
    IF expression IS NULL THEN
        PERFORM postrider_internal.reject_filter(member || '.field', format('must be data.<path>, subject, type, id, '
            'source, error, response or text, is %s', left(field, 64)));
    END IF;
    PERFORM postrider_internal.require_type(member || '.value', value, '{string}');
    RETURN postrider_internal.text_condition(member || '.value', expression, given ->> 'op', value);
END $$;

CREATE FUNCTION postrider_internal.min_attempts_condition(n numeric) RETURNS text LANGUAGE plpgsql IMMUTABLE
    SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF n < 0 OR n % 1 <> 0 THEN
        PERFORM postrider_internal.reject_filter('filter.min_attempts',
            format('must be a whole number, 0 or more, is %s', n));
    END IF;
    RETURN format('attempts >= %s', n);
END $$;

CREATE FUNCTION postrider_internal.state_condition(given text) RETURNS text LANGUAGE plpgsql IMMUTABLE
    SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF given NOT IN ('open', 'redelivered', 'resolved') THEN
        PERFORM postrider_internal.reject_filter('filter.state', format(
            'must be open, redelivered or resolved, is "%s"', left(given, 64)));
    END IF;
    RETURN format('state = %L', given);
END $$;

-- A filter of dead letters as conditions on columns of postrider.dead_letters. Values of the filter become quoted
-- literals. A status of 0 is none: the endpoint did not respond.
CREATE FUNCTION postrider_internal.dead_letter_condition(filter jsonb) RETURNS text LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO' AS $$
    -- Other styles write an ambiguous name of the time zone, such as IST.
DECLARE
    member text;
    value jsonb;
    given text;
    wanted text;
    conditions text[] := '{}';
BEGIN
    IF filter IS NULL OR jsonb_typeof(filter) <> 'object' THEN
        PERFORM postrider_internal.reject_filter('filter', CASE WHEN filter IS NULL
            THEN 'is required: {} matches every dead letter' ELSE 'must be an object, is '
            || postrider_internal.kind_in_words(filter) END);
    END IF;
    FOR member, value IN SELECT * FROM jsonb_each(filter) LOOP
        wanted := CASE WHEN member IN ('topic', 'subscription', 'reason', 'last_outcome', 'event_id', 'event_type',
            'state', 'subject', 'subject_prefix', 'source', 'dead_lettered_from', 'dead_lettered_until')
            THEN 'string'
                       WHEN member IN ('last_status', 'min_attempts') THEN 'number'
                       WHEN member IN ('dead_letter_ids', 'match') THEN 'array' END;
        given := value #>> '{}';
        IF wanted IS NULL THEN
            PERFORM postrider_internal.reject_filter(format('filter.%s', left(member, 64)), 'is no member of a filter');
        END IF;
        PERFORM postrider_internal.require_type('filter.' || member, value, ARRAY [wanted]);
        conditions := conditions || CASE member
            WHEN 'match' THEN postrider_internal.match_conditions(value)
            WHEN 'subject_prefix' THEN format('starts_with(subject, %L)', given)
            WHEN 'last_status' THEN CASE WHEN given::numeric = 0 THEN 'last_status IS NULL'
                WHEN abs(given::numeric) < 1000 AND given::numeric % 1 = 0
                THEN format('last_status = %s', given::numeric::integer) ELSE 'false' END
            WHEN 'min_attempts' THEN postrider_internal.min_attempts_condition(given::numeric)
            WHEN 'state' THEN postrider_internal.state_condition(given)
            WHEN 'dead_lettered_from' THEN format('dead_lettered_at >= %L',
                postrider_internal.filter_time('filter.' || member, given))
            WHEN 'dead_lettered_until' THEN format('dead_lettered_at < %L',
                postrider_internal.filter_time('filter.' || member, given))
            WHEN 'dead_letter_ids' THEN format('dead_letter_id = ANY (%L)', postrider_internal.filter_ids('filter.'
                || member, value))
            ELSE format('%I = %L', member, given) END;
    END LOOP;
    RETURN coalesce(nullif(array_to_string(conditions, E'\n   AND '), ''), 'true');
END $$;

CREATE FUNCTION postrider_internal.match_conditions(value jsonb) RETURNS text LANGUAGE plpgsql STABLE STRICT
    SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF jsonb_array_length(value) NOT BETWEEN 1 AND 20 THEN
        PERFORM postrider_internal.reject_filter('filter.match', format('must have between 1 and 20 conditions, has %s',
            jsonb_array_length(value)));
    END IF;
    RETURN (SELECT string_agg(postrider_internal.match_condition(format('filter.match[%s]', n - 1), c), E'\n   AND '
        ORDER BY n) FROM jsonb_array_elements(value) WITH ORDINALITY AS m(c, n));
END $$;

CREATE FUNCTION postrider_internal.filter_time(member text, given text) RETURNS timestamptz LANGUAGE plpgsql
STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN postrider_internal.envelope_time(member, given);
EXCEPTION WHEN invalid_parameter_value THEN
    RAISE EXCEPTION USING ERRCODE = '22023', COLUMN = member,
        MESSAGE = format('%s: "%s" is not an RFC 3339 time such as 2026-11-23T10:00:00Z', member, left(given, 64));
END $$;

CREATE FUNCTION postrider_internal.filter_ids(member text, value jsonb) RETURNS uuid[] LANGUAGE plpgsql IMMUTABLE
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wrong jsonb;
BEGIN
    IF jsonb_array_length(value) > 10000 THEN
        PERFORM postrider_internal.reject_filter(member, format('holds at most 10000 ids, this one has %s',
            jsonb_array_length(value)));
    END IF;
    SELECT e INTO wrong FROM jsonb_array_elements(value) e
     WHERE jsonb_typeof(e) <> 'string' OR
         e #>> '{}' !~ '^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$' LIMIT 1;
    IF FOUND THEN
        PERFORM postrider_internal.reject_filter(member, format('must hold ids of dead letters, not %s',
            left(wrong::text, 64)));
    END IF;
    RETURN ARRAY (SELECT (e #>> '{}')::uuid FROM jsonb_array_elements(value) e);
END $$;

-- PostgreSQL can inline it: a constant value is then converted once, not for each body. Numbers are limited to what it
-- can store.
CREATE FUNCTION postrider.has_value(body jsonb, value text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN value IS NOT NULL AND jsonb_path_exists(body, '$.** ? (@ == $text || @ == $number)',
    jsonb_object(ARRAY['text', value, 'number', value])
    || CASE WHEN value ~ '^-?(0|[1-9][0-9]{0,199})([.][0-9]{1,199})?([eE][-+]?[0-9]{1,3})?$'
            THEN ('{"number":' || value || '}')::jsonb ELSE '{}' END);
-- +goose StatementEnd

GRANT EXECUTE ON FUNCTION postrider.has_value(jsonb, text) TO PUBLIC;
COMMENT ON FUNCTION postrider.has_value(jsonb, text) IS
    'Returns whether a JSON document such as a body has this text or number as a value, at any place. Names of members '
    'are no values. A value such as 42 or 1.5e3 is found both as a text and as a number. It uses no index.';

-- +goose Down
DROP FUNCTION postrider.has_value, postrider_internal.filter_ids, postrider_internal.filter_time,
    postrider_internal.match_conditions,
    postrider_internal.dead_letter_condition, postrider_internal.state_condition,
    postrider_internal.min_attempts_condition,
    postrider_internal.match_condition, postrider_internal.data_condition,
    postrider_internal.text_condition, postrider_internal.letter_case, postrider_internal.check_regexp,
    postrider_internal.document_with, postrider_internal.data_path, postrider_internal.require_type,
    postrider_internal.reject_filter;
