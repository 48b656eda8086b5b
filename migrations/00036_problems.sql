-- +goose Up
-- Problems: what fails, as a case that operators can acknowledge and resolve. A problem is one outcome of failed
-- attempts of one event subscription. Recording attempts does not touch these tables: every 15 s one node compares the
-- counts of the last minutes with the problems (function observe_problems).

-- A series of failures begins with the first failed attempt after a recovery or a resolution, and ends with the next of
-- these. The response of the endpoint is not stored here, because an erasure removes it from the attempt.
CREATE TABLE postrider_internal.problems (
    id                 uuid PRIMARY KEY,
    subscription_id    bigint NOT NULL,
    outcome            text NOT NULL,
    -- When the first failed attempt of the series began, and the last one.
    since              timestamptz NOT NULL,
    last_failed_at     timestamptz NOT NULL,
    -- Of the last failed attempt that was found.
    last_status        integer,
    last_error         text,
    delivery_id        bigint,
    batch_id           bigint,
    -- When a successful attempt began after it, or when nothing was left that could succeed.
    recovered_at       timestamptz,
    acknowledged_until timestamptz,
    acknowledged_at    timestamptz,
    acknowledged_by    text,
    note               text,
    resolved_at        timestamptz,
    resolved_by        text,
    -- Since when it failed in the notice of its beginning: then one of its end follows, and only then. It outlasts
    -- short recoveries.
    notified_since     timestamptz,
    UNIQUE (subscription_id, outcome)
) WITH (fillfactor = 70);

-- When the problems were last observed. The node that has locked the row observes them.
CREATE TABLE postrider_internal.problem_pass (
    one         boolean PRIMARY KEY DEFAULT true CHECK (one),
    observed_at timestamptz NOT NULL DEFAULT '-infinity'
);
INSERT INTO postrider_internal.problem_pass DEFAULT VALUES;

-- +goose StatementBegin
-- The id of a problem, a UUID of version 8. It is derived, so that lists know it before the problem was observed.
CREATE FUNCTION postrider_internal.problem_id(subscription_id bigint, outcome text) RETURNS uuid LANGUAGE sql
    IMMUTABLE PARALLEL SAFE
RETURN overlay(overlay(left(encode(sha256(convert_to(subscription_id || '/' || outcome, 'UTF8')), 'hex'), 32)
    PLACING '8' FROM 13) PLACING '8' FROM 17)::uuid;

-- The state of a problem.
CREATE FUNCTION postrider_internal.problem_state(resolved_at timestamptz, recovered_at timestamptz,
    acknowledged_until timestamptz) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE WHEN resolved_at IS NOT NULL THEN 'resolved' WHEN recovered_at IS NOT NULL THEN 'recovered'
            WHEN acknowledged_until > now() THEN 'acknowledged' ELSE 'failing' END;

-- Open dead letters of an event subscription, counted up to 1,000, as the list of problems counts them.
CREATE FUNCTION postrider_internal.open_dead_letters(topic text, subscription text) RETURNS integer LANGUAGE sql STABLE
BEGIN ATOMIC
SELECT count(*)::integer FROM (SELECT FROM postrider_internal.dead_letters l
    WHERE l.topic = open_dead_letters.topic AND l.subscription = open_dead_letters.subscription AND l.state = 'open'
    LIMIT 1000) few;
END;

-- Failed attempts with an outcome since a time: by the minute up to an hour, then by whole hours.
CREATE FUNCTION postrider_internal.count_failures(topic_id bigint, subscription_id bigint, outcome text,
    since timestamptz) RETURNS bigint LANGUAGE sql STABLE BEGIN ATOMIC
SELECT coalesce(sum(c.count), 0)::bigint
  FROM (SELECT r.count
          FROM generate_series(date_trunc('minute', count_failures.since), now(), interval '1 minute') AS g(at)
          JOIN postrider_internal.rollups r ON r.minute = g.at AND r.topic_id = count_failures.topic_id
               AND r.subscription_id = count_failures.subscription_id AND r.kind = 'attempt'
               AND r.detail = count_failures.outcome
         WHERE count_failures.since >= now() - interval '1 hour'
         UNION ALL
        SELECT r.count
          FROM generate_series(date_bin('1 hour', greatest(count_failures.since, now() - interval '90 days'), 'epoch'),
                               now(), interval '1 hour') AS g(at)
          JOIN postrider_internal.rollup_sums r ON r.span = 60 AND r.begins = g.at
               AND r.topic_id = count_failures.topic_id AND r.subscription_id = count_failures.subscription_id
               AND r.kind = 'attempt' AND r.detail = count_failures.outcome
         WHERE count_failures.since < now() - interval '1 hour'
         UNION ALL
        SELECT u.count
          FROM postrider_internal.unmerged_counts u
         WHERE u.topic_id = count_failures.topic_id AND u.subscription_id = count_failures.subscription_id
           AND u.kind = 'attempt' AND u.detail = count_failures.outcome
           AND u.minute >= date_trunc('minute', count_failures.since)) c;
END;

-- Stores a notice of a problem. It is an event like any other: an erasure does not find the error and response in it.
-- Returns false without an event subscription of postrider.system, and for problems of that topic's own event
-- subscriptions. The days are part of the statement's text: a kept plan would lock every day's partition.
CREATE FUNCTION postrider_internal.note_problem(p postrider_internal.problems, type text, reason text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s record;
    response text;
    since timestamptz := coalesce(p.notified_since, p.since);
BEGIN
    SELECT e.topic_id, t.name AS topic, e.name, e.endpoint_base_url INTO STRICT s
      FROM postrider_internal.event_subscriptions e JOIN postrider_internal.topics t ON t.id = e.topic_id
     WHERE e.id = p.subscription_id;
    IF postrider_internal.notices_since() IS NULL OR s.topic_id = postrider_internal.system_topic() THEN
        RETURN false;
    END IF;
    EXECUTE format($newest$
        SELECT left(postrider.try_text(a.response_excerpt), 300)
          FROM (SELECT * FROM postrider_internal.delivery_attempts
                 WHERE day >= %L AND subscription_id = $1 AND verdict <> 'deliver' AND started_at <= $2
                 ORDER BY started_at DESC LIMIT 20) a
         WHERE a.outcome = $3 ORDER BY a.started_at DESC LIMIT 1$newest$, (p.last_failed_at AT TIME ZONE 'UTC')::date)
         INTO response USING p.subscription_id, p.last_failed_at, p.outcome;
    INSERT INTO postrider_internal.notices (type, topic_id, subscription_id, reason, details)
    VALUES (note_problem.type, s.topic_id, p.subscription_id, note_problem.reason, jsonb_strip_nulls(jsonb_build_object(
        'problemId', p.id, 'outcome', p.outcome, 'status', p.last_status, 'error', left(p.last_error, 300),
        'response', nullif(response, ''), 'since', postrider_internal.json_time(since),
        'lastFailedAt', postrider_internal.json_time(p.last_failed_at),
        'recoveredAt', CASE WHEN note_problem.reason IS NOT NULL THEN postrider_internal.json_time(p.recovered_at) END,
        'failures', greatest(1, postrider_internal.count_failures(s.topic_id, p.subscription_id, p.outcome, since)),
        'pending', (SELECT coalesce(sum(c.n), 0)
                      FROM (SELECT b.deliveries AS n FROM postrider_internal.backlog_counts b
                             WHERE b.subscription_id = p.subscription_id
                             UNION ALL
                            SELECT CASE u.kind WHEN 'matched' THEN u.count ELSE -u.count END
                              FROM postrider_internal.unmerged_counts u
                             WHERE u.subscription_id = p.subscription_id AND u.kind IN ('matched', 'delivered',
                                 'dead_lettered', 'dropped', 'canceled')) c),
        'openDeadLetters', postrider_internal.open_dead_letters(s.topic, s.name),
        'endpointBaseUrl', nullif(s.endpoint_base_url, ''), 'command', 'postrider problem show ' || p.id)));
    RETURN true;
END $$;

-- Compares the problems with what was counted since the last time, at most every 10 s for all nodes together. Returns
-- the number of problems that began or ended. It reads the counts of two to three minutes, and for each event
-- subscription with failures its newest 20 failed attempts: 100 of them take 15 ms. A notice takes 2 ms more: at most
-- 500 are stored at once.
--
-- A problem has recovered if its last failure began more than a minute ago and a successful attempt began after it.
-- That is known from the newest 20 finished deliveries and that of the last failure, or else from a success that was
-- counted in a later minute. Failures whose deliveries ended for good may be followed by no attempt at all: once an
-- hour, problems recover too that have had no failure for 24 hours and whose outcome none of the oldest 10,000 pending
-- deliveries has.
--
-- The beginning is notified if the problem has not recovered a minute after the first failure and after further ones
-- within it: a retry may have succeeded after the last one. The end is notified after five minutes without a failure:
-- an endpoint that fails every two minutes causes one notice, not one for each failure.
CREATE FUNCTION postrider_internal.observe_problems() RETURNS integer LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    first_minute timestamptz;
    day date;
    p postrider_internal.problems;
    changed integer := 0;
    hourly boolean;
BEGIN
    -- A transaction that counts an attempt ends within half a minute.
    SELECT date_trunc('minute', greatest(least(w.observed_at, now() - interval '1 minute') - interval '1 minute',
        now() - interval '1 hour')), w.observed_at < date_trunc('hour', now()) INTO first_minute, hourly
      FROM postrider_internal.problem_pass w WHERE w.observed_at < clock_timestamp() - interval '10 seconds'
       FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    UPDATE postrider_internal.problem_pass SET observed_at = clock_timestamp();
    day := (first_minute AT TIME ZONE 'UTC')::date;
    EXECUTE format($failed$
        WITH counted AS (
            SELECT minute, subscription_id, detail FROM postrider_internal.rollups
             WHERE minute >= $1 AND kind = 'attempt' AND detail NOT IN ('Delivered', 'Acknowledged')
             UNION ALL
            SELECT minute, subscription_id, detail FROM postrider_internal.unmerged_counts
             WHERE minute >= $1 AND kind = 'attempt' AND detail NOT IN ('Delivered', 'Acknowledged')
        ), failed AS MATERIALIZED (
            SELECT c.subscription_id, c.detail AS outcome, max(c.minute) AS minute
              FROM counted c
              JOIN postrider_internal.event_subscriptions s ON s.id = c.subscription_id AND s.deleted_at IS NULL
             GROUP BY 1, 2
        ), newest AS MATERIALIZED (
            SELECT DISTINCT ON (f.subscription_id, a.outcome) f.subscription_id, a.*
              FROM (SELECT DISTINCT subscription_id FROM failed) f
             CROSS JOIN LATERAL (
                   SELECT outcome, started_at, status, error, delivery_id, batch_id
                     FROM postrider_internal.delivery_attempts
                    WHERE day >= %1$L AND subscription_id = f.subscription_id AND verdict <> 'deliver'
                    ORDER BY started_at DESC
                    LIMIT 20) a
             ORDER BY f.subscription_id, a.outcome, a.started_at DESC
        ), found AS (
            SELECT f.subscription_id, f.outcome, coalesce(n.started_at, f.minute) AS at, n.status, n.error,
                   n.delivery_id, n.batch_id, greatest(p.last_failed_at, p.resolved_at) AS known,
                   p.id IS NULL OR p.recovered_at IS NOT NULL OR p.resolved_at IS NOT NULL AS begins
              FROM failed f
              LEFT JOIN newest n USING (subscription_id, outcome)
              LEFT JOIN postrider_internal.problems p USING (subscription_id, outcome)
        )
        INSERT INTO postrider_internal.problems AS p (id, subscription_id, outcome, since, last_failed_at, last_status,
            last_error, delivery_id, batch_id)
        SELECT postrider_internal.problem_id(f.subscription_id, f.outcome), f.subscription_id, f.outcome,
               CASE WHEN f.begins THEN coalesce((
                    SELECT min(a.started_at)
                      FROM (SELECT started_at, outcome FROM postrider_internal.delivery_attempts
                             WHERE day >= %1$L AND subscription_id = f.subscription_id AND verdict <> 'deliver'
                               AND started_at > greatest(f.known, $1 - interval '1 minute')
                             ORDER BY started_at
                             LIMIT 100) a
                     WHERE a.outcome = f.outcome), f.at) ELSE f.at END, f.at, f.status, f.error, f.delivery_id,
               f.batch_id
          FROM found f
         WHERE f.known IS NULL OR f.at > f.known
         ORDER BY f.subscription_id, f.outcome
            ON CONFLICT (subscription_id, outcome) DO UPDATE SET
               since = CASE WHEN p.recovered_at IS NULL AND p.resolved_at IS NULL THEN p.since ELSE excluded.since END,
               last_failed_at = excluded.last_failed_at, last_status = excluded.last_status,
               last_error = excluded.last_error, delivery_id = excluded.delivery_id, batch_id = excluded.batch_id,
               note = CASE WHEN p.resolved_at IS NULL AND (p.recovered_at IS NULL OR p.acknowledged_until > now())
                           THEN p.note END,
               recovered_at = NULL, resolved_at = NULL, resolved_by = NULL
         WHERE excluded.last_failed_at > greatest(p.last_failed_at, p.resolved_at)$failed$, day) USING first_minute;

    EXECUTE format($recovered$
        WITH failing AS MATERIALIZED (
            SELECT p.id, p.subscription_id, p.last_failed_at, p.delivery_id, p.resolved_at
              FROM postrider_internal.problems p
             WHERE p.recovered_at IS NULL AND p.resolved_at IS NULL
               AND p.last_failed_at < now() - interval '1 minute'
        ), succeeded AS MATERIALIZED (
            SELECT c.subscription_id, max(c.minute) AS minute
              FROM (SELECT minute, subscription_id FROM postrider_internal.rollups
                     WHERE minute >= $1 AND kind = 'attempt' AND detail IN ('Delivered', 'Acknowledged')
                     UNION ALL
                    SELECT minute, subscription_id FROM postrider_internal.unmerged_counts
                     WHERE minute >= $1 AND kind = 'attempt' AND detail IN ('Delivered', 'Acknowledged')) c
             WHERE EXISTS (SELECT FROM failing)
             GROUP BY 1
        )
        UPDATE postrider_internal.problems p SET recovered_at = coalesce(d.at, c.minute)
          FROM failing f
          LEFT JOIN succeeded c USING (subscription_id)
          LEFT JOIN LATERAL (
               SELECT min(h.last_attempt_at) AS at
                 FROM ((SELECT state, last_attempt_at FROM postrider_internal.delivery_history
                         WHERE day >= %1$L AND subscription_id = f.subscription_id ORDER BY id DESC LIMIT 20)
                        UNION ALL
                       SELECT state, last_attempt_at FROM postrider_internal.delivery_history
                        WHERE day >= %1$L AND id = f.delivery_id) h
                WHERE h.state = 'delivered' AND h.last_attempt_at > f.last_failed_at) d ON true
         WHERE p.id = f.id AND p.resolved_at IS NULL AND p.last_failed_at = f.last_failed_at
           AND (d.at IS NOT NULL OR c.minute > f.last_failed_at)$recovered$, day) USING first_minute;

    IF hourly THEN
        UPDATE postrider_internal.problems x SET recovered_at = now()
         WHERE x.recovered_at IS NULL AND x.resolved_at IS NULL AND x.last_failed_at < now() - interval '24 hours'
           AND NOT EXISTS (SELECT FROM (SELECT d.last_outcome FROM postrider_internal.deliveries d
                                         WHERE d.subscription_id = x.subscription_id ORDER BY d.id LIMIT 10000) oldest
                            WHERE oldest.last_outcome = x.outcome);
    END IF;

    FOR p IN SELECT * FROM postrider_internal.problems x
     WHERE x.notified_since IS NOT NULL
           AND (x.recovered_at IS NOT NULL AND x.last_failed_at < now() - interval '5 minutes'
                OR EXISTS (SELECT FROM postrider_internal.event_subscriptions s
                            WHERE s.id = x.subscription_id AND s.deleted_at IS NOT NULL))
        OR x.notified_since IS NULL AND x.recovered_at IS NULL AND x.resolved_at IS NULL
           AND (x.last_failed_at < now() - interval '1 minute'
                OR x.last_failed_at > x.since + interval '1 minute') AND (x.acknowledged_until > now()) IS NOT TRUE
           AND postrider_internal.notices_since() IS NOT NULL
     ORDER BY x.subscription_id, x.outcome LIMIT 500 FOR UPDATE SKIP LOCKED
    LOOP
        IF p.notified_since IS NOT NULL THEN
            PERFORM postrider_internal.note_problem(p, 'postrider.problem.ended',
                CASE WHEN p.recovered_at IS NULL THEN 'resolved' ELSE 'recovered' END);
            UPDATE postrider_internal.problems x SET notified_since = NULL WHERE x.id = p.id;
            changed := changed + 1;
        ELSIF EXISTS (SELECT FROM postrider_internal.event_subscriptions s
                       WHERE s.id = p.subscription_id AND s.deleted_at IS NULL)
              AND postrider_internal.note_problem(p, 'postrider.problem.started', NULL) THEN
            UPDATE postrider_internal.problems x SET notified_since = p.since WHERE x.id = p.id;
            changed := changed + 1;
        END IF;
    END LOOP;
    RETURN changed;
END $$;

CREATE FUNCTION postrider_internal.reject_problem(id uuid) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'P0002', MESSAGE = CASE WHEN id IS NULL
        THEN 'problem_id is required' ELSE format('problem %s does not exist', id) END,
        HINT = 'SELECT problem_id FROM postrider.problems lists those there are; a new one appears within 15 s.';
END $$;

-- Acknowledges a problem until a time, and returns its state.
CREATE FUNCTION postrider_internal.acknowledge_problem(problem_id uuid, until timestamptz, note text, actor text,
    address text) RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    p record;
BEGIN
    PERFORM postrider_internal.check_note(note);
    IF until IS NULL OR until <= clock_timestamp() OR until > clock_timestamp() + interval '30 days 1 minute' THEN
        RAISE EXCEPTION USING ERRCODE = '22023', COLUMN = 'until',
            MESSAGE = CASE WHEN until IS NULL THEN 'until is required'
                ELSE format('until must be in the next 30 days, not %s', postrider_internal.json_time(until)) END;
    END IF;
    PERFORM postrider_internal.commit_soon();
    UPDATE postrider_internal.problems x
       SET acknowledged_until = until, acknowledged_at = clock_timestamp(),
           acknowledged_by = coalesce(actor, session_user), note = nullif(acknowledge_problem.note, '')
      FROM postrider_internal.event_subscriptions s JOIN postrider_internal.topics t ON t.id = s.topic_id
     WHERE x.id = problem_id AND s.id = x.subscription_id
    RETURNING t.name AS topic, s.name AS subscription, x.outcome,
              postrider_internal.problem_state(x.resolved_at, x.recovered_at, x.acknowledged_until) AS state INTO p;
    IF NOT FOUND THEN
        PERFORM postrider_internal.reject_problem(problem_id);
    END IF;
    PERFORM postrider_internal.note_audit(actor, address, 'problem_acknowledged', p.topic, p.subscription,
        jsonb_build_object('problemId', problem_id, 'outcome', p.outcome, 'until', postrider_internal.json_time(until),
            'note', nullif(note, '')));
    RETURN p.state;
END $$;

-- Resolves a problem until its next failure, and returns its state.
CREATE FUNCTION postrider_internal.resolve_problem(problem_id uuid, note text, actor text, address text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    p postrider_internal.problems;
    s record;
BEGIN
    PERFORM postrider_internal.check_note(note);
    PERFORM postrider_internal.commit_soon();
    SELECT * INTO p FROM postrider_internal.problems x WHERE x.id = problem_id FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM postrider_internal.reject_problem(problem_id);
    END IF;
    IF p.notified_since IS NOT NULL THEN
        PERFORM postrider_internal.note_problem(p, 'postrider.problem.ended', 'resolved');
    END IF;
    UPDATE postrider_internal.problems x
       SET resolved_at = clock_timestamp(), resolved_by = coalesce(actor, session_user),
           note = nullif(resolve_problem.note, ''), acknowledged_until = NULL, acknowledged_at = NULL,
           acknowledged_by = NULL, notified_since = NULL
     WHERE x.id = problem_id;
    SELECT t.name AS topic, e.name AS subscription INTO STRICT s FROM postrider_internal.event_subscriptions e
      JOIN postrider_internal.topics t ON t.id = e.topic_id WHERE e.id = p.subscription_id;
    PERFORM postrider_internal.note_audit(actor, address, 'problem_resolved', s.topic, s.subscription,
        jsonb_build_object('problemId', problem_id, 'outcome', p.outcome, 'note', nullif(note, '')));
    RETURN 'resolved';
END $$;

CREATE FUNCTION postrider.acknowledge_problem(problem_id uuid, until timestamptz, note text DEFAULT NULL) RETURNS text
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN postrider_internal.acknowledge_problem($1, $2, $3, NULL, NULL);

CREATE FUNCTION postrider.resolve_problem(problem_id uuid, note text DEFAULT NULL) RETURNS text
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN postrider_internal.resolve_problem($1, $2, NULL, NULL);
-- +goose StatementEnd

REVOKE EXECUTE ON FUNCTION postrider.acknowledge_problem(uuid, timestamptz, text),
    postrider.resolve_problem(uuid, text) FROM PUBLIC;
COMMENT ON FUNCTION postrider.acknowledge_problem(uuid, timestamptz, text) IS
    'Acknowledges a problem until a time in the next 30 days, with a note of up to 1,000 characters: it stays listed, '
    'but alerts and notices leave it out. Another call replaces time and note. Returns its state.';
COMMENT ON FUNCTION postrider.resolve_problem(uuid, text) IS
    'Resolves a problem, with a note of up to 1,000 characters: lists hide it until it fails again. Deliveries and '
    'dead letters do not change. Returns its state.';

CREATE VIEW postrider.problems AS
SELECT p.id AS problem_id, t.name AS topic, s.name AS subscription, p.outcome,
       postrider_internal.problem_state(p.resolved_at, p.recovered_at, p.acknowledged_until) AS state, p.since,
       p.last_failed_at, p.last_status, p.last_error, p.delivery_id, p.batch_id, p.recovered_at, p.acknowledged_until,
       p.acknowledged_at, p.acknowledged_by, p.note, p.resolved_at, p.resolved_by, p.subscription_id
  FROM postrider_internal.problems p
  JOIN postrider_internal.event_subscriptions s ON s.id = p.subscription_id
  JOIN postrider_internal.topics t ON t.id = s.topic_id
 WHERE s.deleted_at IS NULL;
COMMENT ON VIEW postrider.problems IS
    'What fails: one row for each event subscription and outcome with failed attempts. A failure appears within 15 s. '
    'Rows are removed 7 days after the recovery or resolution, and with their event subscription.';
COMMENT ON COLUMN postrider.problems.problem_id IS
    'Id of the problem: always the same for an event subscription and an outcome.';
COMMENT ON COLUMN postrider.problems.topic IS 'Topic.';
COMMENT ON COLUMN postrider.problems.subscription IS 'Event subscription.';
COMMENT ON COLUMN postrider.problems.outcome IS 'Outcome of the failed attempts, such as Busy.';
COMMENT ON COLUMN postrider.problems.state IS
    'failing: an attempt has failed in the last minute, or none has succeeded since. recovered: a successful attempt '
    'began after the last failure, or none has failed for 24 hours and no pending delivery has this outcome. '
    'acknowledged: failing, and an operator knows. resolved: ended by an operator; the next failure makes it failing.';
COMMENT ON COLUMN postrider.problems.since IS
    'When the first failed attempt of the series began: the first one, or the first after a recovery or a resolution.';
COMMENT ON COLUMN postrider.problems.last_failed_at IS 'When the last failed attempt began.';
COMMENT ON COLUMN postrider.problems.last_status IS 'Its HTTP status; NULL = no response.';
COMMENT ON COLUMN postrider.problems.last_error IS 'Its error; NULL = a response.';
COMMENT ON COLUMN postrider.problems.delivery_id IS 'Its delivery; NULL = it was of a batch.';
COMMENT ON COLUMN postrider.problems.batch_id IS 'Its batch; NULL = it was of a single event.';
COMMENT ON COLUMN postrider.problems.recovered_at IS
    'When a successful attempt began after the last failure, or when 24 hours had passed without one and without such '
    'pending deliveries; NULL = neither.';
COMMENT ON COLUMN postrider.problems.acknowledged_until IS
    'Until when alerts and notices leave it out; NULL = it was not acknowledged.';
COMMENT ON COLUMN postrider.problems.acknowledged_at IS 'When it was acknowledged.';
COMMENT ON COLUMN postrider.problems.acknowledged_by IS 'Who acknowledged it; values as in postrider.audit.actor.';
COMMENT ON COLUMN postrider.problems.note IS 'Note of the operator who acknowledged or resolved it.';
COMMENT ON COLUMN postrider.problems.resolved_at IS 'When it was resolved; NULL = it is not resolved.';
COMMENT ON COLUMN postrider.problems.resolved_by IS 'Who resolved it; values as in postrider.audit.actor.';
COMMENT ON COLUMN postrider.problems.subscription_id IS
    'Id of the event subscription, see postrider.event_subscriptions.';

-- +goose Down
DROP VIEW postrider.problems;
DROP FUNCTION postrider.resolve_problem, postrider.acknowledge_problem, postrider_internal.resolve_problem,
    postrider_internal.acknowledge_problem, postrider_internal.reject_problem, postrider_internal.observe_problems,
    postrider_internal.note_problem, postrider_internal.count_failures, postrider_internal.open_dead_letters,
    postrider_internal.problem_state, postrider_internal.problem_id;
DROP TABLE postrider_internal.problem_pass, postrider_internal.problems;
