-- +goose Up
-- What people on call do to single deliveries and event subscriptions, and the erasure of events. REST, CLI and the dashboard call the same
-- functions: each is a thin one in schema postrider, and one in postrider_internal that is told who acts.
--
-- A delivery is taken by its token, as everywhere: its job's row is locked first, then its batch, then the delivery, and whoever deletes the
-- job's row ends or moves on the delivery. An attempt whose row is gone records nothing.

-- The dead letters of an event: what an erasure looks for.
CREATE INDEX dead_letters_event_idx ON postrider_internal.dead_letters (event_uuid);

-- A delivery that is locked together with its job and its batch. job_id is the batch's where it is in one; job_state is NULL where there is no such
-- row. reruns are the next attempt's.
CREATE TYPE postrider_internal.taken_delivery AS (
    id              bigint,
    subscription_id bigint,
    topic           text,
    subscription    text,
    deleted         boolean,
    attempts        integer,
    batch_id        bigint,
    hold            text,
    job_id          bigint,
    job_state       text,
    reruns          integer,
    due             timestamptz
);

-- How one delivery ends; error and excerpt are of its last attempt, for a dead letter.
CREATE TYPE postrider_internal.delivery_end AS (
    delivery_id    bigint,
    state          text,
    reason         text,
    dead_letter_id uuid,
    error          text,
    excerpt        bytea
);

-- +goose StatementBegin
-- What these functions lock, publishing or recording may wait for: an attempt that ends finds its job's row locked, and its result waits in its
-- node's memory until this one ends. So a transaction that calls one and then idles for 5 s is ended by PostgreSQL, unless its session has a shorter limit.
CREATE FUNCTION postrider_internal.commit_soon() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT setting::integer NOT BETWEEN 1 AND 5000 FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout') THEN
        PERFORM set_config('idle_in_transaction_session_timeout', '5s', true);
    END IF;
END $$;

-- Says why there is no such unfinished delivery.
CREATE FUNCTION postrider_internal.refuse_delivery(delivery bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    ended text;
BEGIN
    SELECT h.state INTO ended FROM postrider_internal.delivery_history h WHERE h.id = delivery;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('delivery %s has ended: %s', delivery, ended), CONSTRAINT = 'ended',
            HINT = CASE ended WHEN 'dead_lettered' THEN 'postrider.dead_letters has the dead letter that it became.' ELSE 'Only a pending delivery can be acted on.' END;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'P0002', MESSAGE = format('delivery %s does not exist', coalesce(delivery::text, 'NULL')), COLUMN = 'delivery_id',
        HINT = 'SELECT delivery_id FROM postrider.deliveries WHERE state = ''pending'' lists those that can be acted on.';
END $$;

-- Locks a delivery with what it goes by. Where that changed before it could be locked (its attempt was recorded, it went on hold), the locks are
-- given back and it begins again: to wait for another job while holding a delivery would be a circle.
CREATE FUNCTION postrider_internal.take_delivery(delivery bigint) RETURNS postrider_internal.taken_delivery LANGUAGE plpgsql AS $$
DECLARE
    seen record;
    job record;
    t postrider_internal.taken_delivery;
BEGIN
    FOR try IN 1 .. 20 LOOP
        BEGIN
            SELECT d.job_id, d.batch_id, coalesce(d.job_id, b.job_id) AS token, b.hold INTO seen
              FROM postrider_internal.deliveries d LEFT JOIN postrider_internal.batches b ON b.id = d.batch_id WHERE d.id = delivery;
            IF NOT FOUND THEN
                PERFORM postrider_internal.refuse_delivery(delivery);
            END IF;
            SELECT j.state::text AS state, coalesce((j.args ->> 'r')::integer, 0) + j.attempt AS reruns, j.scheduled_at INTO job
              FROM postrider_internal.river_job j WHERE j.id = seen.token FOR UPDATE;
            PERFORM FROM postrider_internal.batches b WHERE b.id = seen.batch_id FOR UPDATE;
            SELECT d.id, d.subscription_id, tp.name, s.name, s.deleted_at IS NOT NULL, d.attempts, d.batch_id, coalesce(d.hold, b.hold), seen.token, job.state, job.reruns,
                   coalesce(job.scheduled_at, b.next_attempt_at, d.next_attempt_at)
              INTO t
              FROM postrider_internal.deliveries d
              JOIN postrider_internal.event_subscriptions s ON s.id = d.subscription_id
              JOIN postrider_internal.topics tp ON tp.id = d.topic_id
              LEFT JOIN postrider_internal.batches b ON b.id = d.batch_id
             WHERE d.id = delivery AND d.job_id IS NOT DISTINCT FROM seen.job_id AND d.batch_id IS NOT DISTINCT FROM seen.batch_id
               AND coalesce(d.job_id, b.job_id) IS NOT DISTINCT FROM seen.token AND (b.id IS NULL OR b.state = 'pending')
               FOR UPDATE OF d;
            IF FOUND THEN
                RETURN t;
            END IF;
            RAISE EXCEPTION USING ERRCODE = 'PRMOV', MESSAGE = 'the delivery moved on';
        EXCEPTION WHEN SQLSTATE 'PRMOV' THEN
            NULL;
        END;
    END LOOP;
    RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = format('delivery %s changes all the time', delivery), HINT = 'Try again.';
END $$;

-- Takes a delivery's token away: its job's row goes. A member leaves its batch, which keeps its job; the last one takes it along, and the batch
-- ends in this state.
CREATE FUNCTION postrider_internal.take_token(t postrider_internal.taken_delivery, state text, reason text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    others boolean := EXISTS (SELECT FROM postrider_internal.deliveries d WHERE d.batch_id = t.batch_id AND d.id <> t.id);
BEGIN
    PERFORM postrider_internal.commit_soon();
    UPDATE postrider_internal.batch_members m SET left_at = now(), left_reason = reason, left_after = t.attempts WHERE m.batch_id = t.batch_id AND m.delivery_id = t.id;
    UPDATE postrider_internal.batches b SET members = b.members - 1 WHERE b.id = t.batch_id;
    IF NOT others THEN
        UPDATE postrider_internal.batches b SET state = take_token.state, finished_at = now(), job_id = NULL, hold = NULL, next_attempt_at = NULL WHERE b.id = t.batch_id;
        DELETE FROM postrider_internal.river_job j WHERE j.id = t.job_id;
    END IF;
END $$;

-- How a delivery ends: its row becomes one of the history and is counted, and a dead letter copies its event. The
-- caller has fenced the deliveries: in its transaction their job rows are deleted, or their own rows are locked. The
-- recorder has the same parts, ends.sql, in its own statement: this call would add 0.2 ms to the 0.4 ms of one result.
-- A test compares the two.
CREATE FUNCTION postrider_internal.end_deliveries(ends postrider_internal.delivery_end[]) RETURNS bigint
    LANGUAGE plpgsql AS $$
DECLARE
    ended bigint;
    failed bigint;
BEGIN
WITH finished AS (
    DELETE FROM postrider_internal.deliveries d USING unnest(ends) e
     WHERE d.id = e.delivery_id AND d.id = ANY (ARRAY (SELECT u.delivery_id FROM unnest(ends) u))
    RETURNING d.*, e.state, e.reason, e.dead_letter_id, e.error, e.excerpt,
              (SELECT s.retry_policy FROM postrider_internal.event_subscriptions s WHERE s.id = d.subscription_id)
                  AS retry_policy, 1::float8 AS time_scale
), history AS (
    INSERT INTO postrider_internal.delivery_history (id, day, subscription_id, topic_id, event_uuid, event_day,
           attempts, reruns, last_status, batch_id, owed_since, first_attempt_at, last_attempt_at, finished_at, state,
           reason, last_outcome, redelivered_from, operation_id, dead_letter_id)
    SELECT id, (now() AT TIME ZONE 'UTC')::date, subscription_id, topic_id, event_uuid, event_day, attempts,
           reruns, last_status, batch_id, owed_since, first_attempt_at, last_attempt_at, now(), state, reason,
           last_outcome, redelivered_from, operation_id, dead_letter_id
      FROM finished
), ends_counted AS (
    INSERT INTO postrider_internal.rollup_deltas (slot, entries)
    SELECT (topic_id + subscription_id) % 8,
           array_agg(ROW (date_trunc('minute', now()), topic_id, subscription_id, state, detail, NULL, count,
                          operation_id)::postrider_internal.rollup_entry)
      FROM (SELECT topic_id, subscription_id, state, operation_id, count(*) AS count,
                   CASE WHEN state = 'delivered' AND attempts = 1 THEN 'FirstAttempt'
                        ELSE coalesce(reason, '') END AS detail
              FROM finished GROUP BY topic_id, subscription_id, state, detail, operation_id) c
     GROUP BY 1
), dead_letters AS (
    -- A dead letter outlives its event, and so copies it. One that is to be exported is due some time after its last
    -- attempt, or after now if none was made.
    INSERT INTO postrider_internal.dead_letters (id, dead_lettered_at, delivery_id, subscription_id, topic_id, topic,
           subscription, endpoint_base_url, reason, attempts, last_outcome, last_status, last_error, last_response,
           first_attempt_at, last_attempt_at, owed_since, published_at, event_time, event_uuid, event_day, event_id,
           event_type, subject, source, data_version, schema, traceparent, tracestate, retry_policy, redelivered_from,
           export_state, export_due_at, export_give_up_at, export_attempts, body)
    SELECT f.dead_letter_id, now(), f.id, f.subscription_id, f.topic_id, t.name,
           s.name, s.endpoint_base_url, f.reason, f.attempts, f.last_outcome, f.last_status, f.error, f.excerpt,
           f.first_attempt_at, f.last_attempt_at, f.owed_since, e.published_at, e.event_time, f.event_uuid, f.event_day,
           e.event_id, e.event_type, e.subject, e.source, e.data_version, e.schema, e.traceparent, e.tracestate,
           f.retry_policy, f.redelivered_from,
           CASE WHEN x.due_at IS NOT NULL THEN 'pending' END, x.due_at, x.due_at + x.give_up,
           CASE WHEN x.due_at IS NOT NULL THEN 0 END, e.body
      FROM finished f
     CROSS JOIN LATERAL (SELECT * FROM postrider_internal.event_subscriptions s
                          WHERE s.id = f.subscription_id LIMIT 1) s
     CROSS JOIN LATERAL (SELECT * FROM postrider_internal.topics t WHERE t.id = f.topic_id LIMIT 1) t
     CROSS JOIN LATERAL (SELECT * FROM postrider_internal.events e
                          WHERE e.id = f.event_uuid AND e.day = f.event_day LIMIT 1) e
      LEFT JOIN LATERAL (SELECT coalesce(f.last_attempt_at, now()) + p.dead_letter_delay / f.time_scale AS due_at,
                                p.dead_letter_give_up / f.time_scale AS give_up
                           FROM postrider_internal.retry_policies p
                          WHERE p.name = f.retry_policy
                            AND s.dead_letter_destination ->> 'endpointType' IN ('Blob', 'StorageBlob')
                          LIMIT 1) x ON true
     WHERE f.state = 'dead_lettered'
)
SELECT count(*), count(*) FILTER (WHERE f.state IN ('dead_lettered', 'dropped')) INTO ended, failed FROM finished f;
    IF failed > 0 THEN
        PERFORM postrider_internal.note_ends(ARRAY (SELECT u.delivery_id FROM unnest(ends) u));
    END IF;
    RETURN ended;
END $$;
COMMENT ON FUNCTION postrider_internal.end_deliveries IS
    'Ends deliveries that the caller has fenced: history, counts, dead letters, notices. Returns how many there were.';

-- An event subscription whose expiration time had come has expired, whoever deleted it.
CREATE FUNCTION postrider_internal.deletion_reason(subscription bigint) RETURNS text LANGUAGE sql STABLE AS $$
SELECT CASE WHEN s.expiration_time_utc <= s.deleted_at THEN 'EventSubscriptionExpired' ELSE 'EventSubscriptionDeleted' END
  FROM postrider_internal.event_subscriptions s WHERE s.id = subscription $$;

-- A delivery is canceled only together with its job row, or its batch and the batch's job row. One whose attempt is being
-- recorded at the same time has another job row afterward; the next call cancels it. A delivery without its job row, which
-- should not exist, is canceled too. A job of a kind that only a newer version knows is left to that version's nodes.
CREATE FUNCTION postrider_internal.cancel_pending(
    subscription bigint, after bigint, most integer, OUT last bigint, OUT met bigint, OUT canceled bigint
) LANGUAGE sql AS $$
WITH pending AS MATERIALIZED (
    SELECT d.id, d.job_id, d.batch_id, b.id AS pending_batch, coalesce(d.job_id, b.job_id) AS token
      FROM postrider_internal.deliveries d
      LEFT JOIN postrider_internal.batches b ON b.id = d.batch_id AND b.state = 'pending'
     WHERE d.subscription_id = subscription AND d.id > after ORDER BY d.id LIMIT most
), free AS (
    SELECT j.id FROM postrider_internal.river_job j
     WHERE j.id IN (SELECT p.token FROM pending p) AND j.kind IN ('deliver', 'batch') ORDER BY j.id FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM postrider_internal.river_job j USING free WHERE j.id = free.id RETURNING j.id
), fenced AS MATERIALIZED (
    SELECT p.* FROM pending p
     WHERE p.token IS NULL OR p.token IN (SELECT g.id FROM gone g)
        OR NOT EXISTS (SELECT FROM postrider_internal.river_job j WHERE j.id = p.token)
), ended_batches AS (
    UPDATE postrider_internal.batches b
       SET state = 'canceled', finished_at = now(), next_attempt_at = NULL, job_id = NULL, hold = NULL
      FROM (SELECT DISTINCT f.pending_batch, f.token FROM fenced f) f
     WHERE b.id = f.pending_batch AND b.state = 'pending' AND b.job_id IS NOT DISTINCT FROM f.token
    RETURNING b.id
), ending AS (
    SELECT f.id, f.job_id, f.batch_id FROM fenced f WHERE f.pending_batch IS NULL
     UNION ALL
    SELECT d.id, d.job_id, d.batch_id
      FROM ended_batches e JOIN postrider_internal.deliveries d ON d.batch_id = e.id
), locked AS MATERIALIZED (
    SELECT d.id
      FROM ending e JOIN postrider_internal.deliveries d ON d.id = e.id
       AND d.job_id IS NOT DISTINCT FROM e.job_id AND d.batch_id IS NOT DISTINCT FROM e.batch_id
     ORDER BY d.id FOR UPDATE OF d
), ended AS MATERIALIZED (
    SELECT postrider_internal.end_deliveries(array_agg(
               ROW (l.id, 'canceled', r.reason, NULL, NULL, NULL)::postrider_internal.delivery_end)) AS count
      FROM locked l, postrider_internal.deletion_reason(subscription) AS r(reason)
)
SELECT coalesce(max(p.id), 0), count(*), (SELECT e.count FROM ended e) FROM pending p $$;
COMMENT ON FUNCTION postrider_internal.deletion_reason IS
    'Why deliveries of a deleted event subscription are canceled; NULL = there is no such event subscription.';
COMMENT ON FUNCTION postrider_internal.cancel_pending IS
    'Cancels pending deliveries of a deleted event subscription: those after a delivery id, in the order of their ids, with the other members of their batches. Returns the last id it met, how many it met, and how many it canceled.';

-- What the last attempt of a delivery met, alone or in a batch.
CREATE FUNCTION postrider_internal.last_attempt(delivery bigint, number integer) RETURNS TABLE (error text, response_excerpt bytea) LANGUAGE sql STABLE AS $$
SELECT a.error, a.response_excerpt FROM postrider_internal.delivery_attempts a WHERE a.delivery_id = last_attempt.delivery AND a.number = last_attempt.number AND NOT a.late
 UNION ALL
SELECT a.error, a.response_excerpt FROM postrider_internal.batch_members m JOIN postrider_internal.delivery_attempts a ON a.batch_id = m.batch_id
 WHERE m.delivery_id = last_attempt.delivery AND a.number = last_attempt.number AND a.number <= coalesce(m.left_after, a.number) AND NOT a.late
 LIMIT 1 $$;

-- What a person does to one delivery; without an action it is part of something larger, which the audit has. Whose request is under way is told
-- so: it may still arrive.
CREATE FUNCTION postrider_internal.end_by_hand(delivery bigint, state text, reason text, action text, actor text, address text) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
    t postrider_internal.taken_delivery := postrider_internal.take_delivery(delivery);
    letter uuid;
    error text;
    response bytea;
BEGIN
    IF state = 'dead_lettered' THEN
        PERFORM FROM postrider_internal.deliveries d
           JOIN postrider_internal.events e ON e.id = d.event_uuid AND e.day = d.event_day AND e.erased_at IS NULL
          WHERE d.id = t.id;
        IF NOT FOUND THEN
            RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = 'event_gone',
                MESSAGE = format('the event of delivery %s is gone', delivery),
                HINT = 'A dead letter holds its event, and there is none. postrider.cancel() ends the delivery.';
        END IF;
        letter := postrider_internal.new_uuid();
        SELECT a.error, a.response_excerpt INTO error, response FROM postrider_internal.last_attempt(t.id, t.attempts) a;
    END IF;
    PERFORM postrider_internal.take_token(t, state, reason);
    PERFORM postrider_internal.end_deliveries(
        ARRAY [ROW (t.id, state, reason, letter, error, response)::postrider_internal.delivery_end]);
    IF action IS NOT NULL THEN
        PERFORM postrider_internal.note_audit(actor, address, action, t.topic, t.subscription, jsonb_build_object('deliveryId', t.id, 'deadLetterId', letter));
    END IF;
    IF t.job_state = 'running' THEN
        RAISE NOTICE 'an attempt of delivery % is under way: it may still reach the endpoint, and nothing of it is recorded', t.id;
    END IF;
    RETURN letter;
END $$;

CREATE FUNCTION postrider_internal.cancel(delivery_id bigint, actor text, address text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM postrider_internal.end_by_hand(delivery_id, 'canceled', 'CanceledByOperator', 'delivery_canceled', actor, address);
    RETURN 'canceled';
END $$;

CREATE FUNCTION postrider_internal.dead_letter_now(delivery_id bigint, actor text, address text) RETURNS uuid LANGUAGE sql AS $$
SELECT postrider_internal.end_by_hand(delivery_id, 'dead_lettered', 'DeadLetteredByOperator', 'delivery_dead_lettered', actor, address) $$;

-- Says that an event subscription is on hold, and what ends that.
CREATE FUNCTION postrider_internal.refuse_held(topic text, subscription text, hold text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = hold,
        MESSAGE = format('event subscription "%s" of topic "%s" is ', subscription, topic)
               || CASE hold WHEN 'paused' THEN 'paused' WHEN 'probation' THEN 'on probation' ELSE 'waiting for its endpoint''s validation' END,
        HINT = CASE hold WHEN 'paused' THEN format('SELECT postrider.resume(%L, %L) ends the pause.', topic, subscription)
                         WHEN 'probation' THEN format('SELECT postrider.release(%L, %L) ends the probation.', topic, subscription)
                         ELSE 'See postrider.handshakes; POST /v1/topics/{topic}/subscriptions/{subscription}/validate runs the handshake again.' END;
END $$;

CREATE FUNCTION postrider_internal.retry_now(delivery_id bigint, actor text, address text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    t postrider_internal.taken_delivery := postrider_internal.take_delivery(delivery_id);
    held text := nullif(postrider_internal.hold_of(t.subscription_id), 'admission');
    job bigint;
BEGIN
    IF t.job_state = 'running' THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('an attempt of delivery %s is under way', t.id), CONSTRAINT = 'running',
            HINT = 'Wait for its outcome: SELECT state, last_outcome, next_attempt_at FROM postrider.deliveries tells it.';
    ELSIF t.deleted THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('event subscription "%s" of topic "%s" was deleted', t.subscription, t.topic), CONSTRAINT = 'deleted',
            HINT = 'What it was owed is being canceled.';
    ELSIF held IS NOT NULL THEN
        PERFORM postrider_internal.refuse_held(t.topic, t.subscription, held);
    ELSIF t.due <= clock_timestamp() AND (t.job_state IS NOT NULL OR t.job_id IS NULL) THEN
        RETURN; -- it is due: a new job would only lose its place in the queue
    END IF;
    PERFORM postrider_internal.note_audit(actor, address, 'delivery_retried', t.topic, t.subscription, jsonb_build_object('deliveryId', t.id));
    PERFORM postrider_internal.take_token(t, 'canceled', 'RetriedByOperator');
    IF t.hold IS NULL THEN
        job := nextval('postrider_internal.river_job_id_seq');
        INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at)
        VALUES (job, 'available', jsonb_strip_nulls(jsonb_build_object('d', t.id, 's', t.subscription_id, 'n', t.attempts + 1,
                    'r', CASE WHEN t.batch_id IS NULL THEN nullif(t.reruns, 0) END)), 'deliver', 'deliveries', 1, 1000, now());
    END IF;
    -- What is on hold is released by the next refill: it is the oldest that is due.
    UPDATE postrider_internal.deliveries d SET job_id = job, batch_id = NULL, hold = t.hold, next_attempt_at = now(), not_before = NULL WHERE d.id = t.id;
END $$;

CREATE FUNCTION postrider_internal.find_subscription(topic text, subscription text) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    found_id bigint;
BEGIN
    SELECT s.id INTO found_id FROM postrider_internal.event_subscriptions s JOIN postrider_internal.topics t ON t.id = s.topic_id
     WHERE t.name = topic AND t.deleted_at IS NULL AND s.name = subscription AND s.deleted_at IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'P0002', MESSAGE = format('topic "%s" has no event subscription "%s"', topic, subscription), COLUMN = 'subscription',
            HINT = 'SELECT topic, subscription FROM postrider.event_subscriptions lists those there are.';
    END IF;
    RETURN found_id;
END $$;

CREATE FUNCTION postrider_internal.pause(topic text, subscription text, stop_time_to_live boolean, actor text, address text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    wanted bigint := postrider_internal.find_subscription(topic, subscription);
BEGIN
    PERFORM postrider_internal.commit_soon();
    PERFORM FROM postrider_internal.event_subscription_states st WHERE st.subscription_id = wanted AND st.resumed_at IS NOT NULL FOR UPDATE;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('event subscription "%s" of topic "%s" is still ending its last pause', subscription, topic), CONSTRAINT = 'resuming',
            HINT = 'Its deliveries hold meanwhile. Try again in a moment.';
    END IF;
    INSERT INTO postrider_internal.event_subscription_states AS st (subscription_id, paused_since, stop_time_to_live) VALUES (wanted, now(), coalesce(pause.stop_time_to_live, false))
        ON CONFLICT (subscription_id) DO UPDATE SET paused_since = coalesce(st.paused_since, now()), updated_at = now(),
           stop_time_to_live = CASE WHEN st.paused_since IS NULL THEN coalesce(pause.stop_time_to_live, false) ELSE coalesce(pause.stop_time_to_live, st.stop_time_to_live) END;
    PERFORM postrider_internal.note_audit(actor, address, 'subscription_paused', topic, subscription, jsonb_build_object('stopTimeToLive', pause.stop_time_to_live));
END $$;

CREATE FUNCTION postrider_internal.resume(topic text, subscription text, actor text, address text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    wanted bigint := postrider_internal.find_subscription(topic, subscription);
BEGIN
    PERFORM postrider_internal.commit_soon();
    UPDATE postrider_internal.event_subscription_states st
       SET updated_at = now(), paused_since = CASE WHEN st.stop_time_to_live THEN st.paused_since END,
           resumed_at = CASE WHEN st.stop_time_to_live AND st.paused_since IS NOT NULL THEN coalesce(st.resumed_at, now()) END
     WHERE st.subscription_id = wanted;
    PERFORM postrider_internal.note_audit(actor, address, 'subscription_resumed', topic, subscription, NULL);
END $$;

-- The state's row is locked, so that each delivery is moved once: one that was pending before the pause by its whole length,
-- one that was published during the pause by the rest of it.
CREATE FUNCTION postrider_internal.move_time_to_live(subscription bigint, most integer, wait boolean) RETURNS boolean LANGUAGE sql AS $$
WITH awaited AS MATERIALIZED (
    SELECT st.* FROM postrider_internal.event_subscription_states st
     WHERE wait AND st.subscription_id = subscription AND st.resumed_at IS NOT NULL FOR UPDATE
), free AS MATERIALIZED (
    SELECT st.* FROM postrider_internal.event_subscription_states st
     WHERE NOT wait AND st.subscription_id = subscription AND st.resumed_at IS NOT NULL FOR UPDATE SKIP LOCKED
), state AS MATERIALIZED (
    SELECT * FROM awaited UNION ALL SELECT * FROM free
), step AS MATERIALIZED (
    SELECT d.id FROM state JOIN postrider_internal.deliveries d ON d.subscription_id = state.subscription_id
     WHERE d.id > state.moved_to AND d.owed_since < state.resumed_at ORDER BY d.id LIMIT most
), moved AS (
    UPDATE postrider_internal.deliveries d
       SET owed_since = d.owed_since + (state.resumed_at - greatest(d.owed_since, state.paused_since))
      FROM step, state WHERE d.id = step.id
), advanced AS (
    UPDATE postrider_internal.event_subscription_states st SET updated_at = now(), moved_to = (SELECT max(id) FROM step)
      FROM state WHERE st.subscription_id = state.subscription_id AND (SELECT count(*) FROM step) = most
), ended AS (
    UPDATE postrider_internal.event_subscription_states st
       SET updated_at = now(), moved_to = 0, paused_since = NULL, resumed_at = NULL, stop_time_to_live = false
      FROM state WHERE st.subscription_id = state.subscription_id AND (SELECT count(*) FROM step) < most
)
SELECT count(*) = most FROM step $$;
COMMENT ON FUNCTION postrider_internal.move_time_to_live IS
    'Takes a pause that has stopped the time to live off the age of the next deliveries of an event subscription. Returns whether there may be more; else the pause is over. Without wait it does nothing while another transaction does the same.';

CREATE FUNCTION postrider_internal.release(topic text, subscription text, actor text, address text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    wanted bigint := postrider_internal.find_subscription(topic, subscription);
    held text := nullif(postrider_internal.hold_of(wanted), 'admission');
BEGIN
    IF held <> 'probation' THEN
        PERFORM postrider_internal.refuse_held(topic, subscription, held);
    END IF;
    PERFORM postrider_internal.commit_soon();
    DELETE FROM postrider_internal.probations r USING postrider_internal.event_subscriptions s JOIN postrider_internal.retry_policies p ON p.name = s.retry_policy
     WHERE s.id = wanted AND r.since IS NOT NULL AND r.rest_key = postrider_internal.rest_key(p.probation_scope, s.endpoint_hash, s.id);
    PERFORM postrider_internal.note_audit(actor, address, 'subscription_released', topic, subscription, NULL);
END $$;

-- Refuses to erase what a node may be writing to a location outside at this moment: it has read the bodies. The dead letters are locked against being
-- taken up by an export, and the jobs of the exports that have them against being begun. A job that is locked is being begun or ended: not waited for.
CREATE FUNCTION postrider_internal.refuse_exporting(events uuid[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    l record;
BEGIN
    PERFORM FROM postrider_internal.dead_letters d WHERE d.event_uuid = ANY (events) ORDER BY d.id FOR UPDATE;
    FOR l IN SELECT d.id, x.job_id FROM postrider_internal.dead_letters d JOIN postrider_internal.exports x ON x.id = d.export_id WHERE d.event_uuid = ANY (events) ORDER BY x.job_id LOOP
        PERFORM FROM postrider_internal.river_job j WHERE j.id = l.job_id AND j.state <> 'running' FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = 'exporting', MESSAGE = format('dead letter %s is being exported; try again in a minute', l.id),
                HINT = 'SELECT export_state, export_location FROM postrider.dead_letters tells what became of it. The file is out of reach.';
        END IF;
    END LOOP;
END $$;

-- Erases these events, of these days, everywhere: what is pending of them is canceled first. Answers how many were not erased before.
--
-- The events' rows come first: whoever makes a delivery of one from then on makes it of an erased event, and its turn drops it. An attempt that is
-- being recorded may make a dead letter of a pending delivery, and a redelivery a pending delivery of a dead letter: so both are looked for until
-- there is neither. Jobs are taken in their order, as those who record do, and events in that of a redelivery of past ones.
CREATE FUNCTION postrider_internal.erase_events(ids uuid[], first_day date, actor text, address text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    erased uuid[] := '{}';
    stored uuid[];
    letters uuid[];
    pending bigint[];
    delivery bigint;
    made bigint[];
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = 'isolation', MESSAGE = format('an erasure under %s would not see what it waits for', upper(current_setting('transaction_isolation'))),
            HINT = 'Erase in a transaction of READ COMMITTED.';
    END IF;
    PERFORM postrider_internal.commit_soon();
    LOOP
        -- A redelivery may have stored the event again, on a later day, and may do so at this moment: the row that it comes from, an event's or a
        -- dead letter's, is then waited for, is erased itself, and so this is done once more.
        PERFORM FROM postrider_internal.events e WHERE e.id = ANY (ids) AND e.day >= first_day AND e.erased_at IS NULL ORDER BY e.day, e.id FOR UPDATE;
        WITH gone AS (
            UPDATE postrider_internal.events e SET body = '', subject = '', erased_at = now() WHERE e.id = ANY (ids) AND e.day >= first_day AND e.erased_at IS NULL RETURNING e.id
        )
        SELECT array_agg(id) INTO stored FROM gone;
        SELECT array_agg(d.id ORDER BY coalesce(d.job_id, b.job_id), d.id) INTO pending
          FROM postrider_internal.deliveries d LEFT JOIN postrider_internal.batches b ON b.id = d.batch_id WHERE d.event_uuid = ANY (ids);
        FOREACH delivery IN ARRAY coalesce(pending, '{}') LOOP
            BEGIN
                PERFORM postrider_internal.end_by_hand(delivery, 'canceled', 'EventErased', NULL, actor, address);
            EXCEPTION WHEN object_not_in_prerequisite_state THEN
                NULL; -- it has ended meanwhile
            END;
        END LOOP;
        PERFORM postrider_internal.refuse_exporting(ids);
        WITH gone AS (
            UPDATE postrider_internal.dead_letters l
               SET body = '', subject = '', last_error = NULL, last_response = NULL, erased_at = now(), export_id = NULL, export_state = nullif(l.export_state, 'pending'),
                   export_due_at = CASE WHEN l.export_state <> 'pending' THEN l.export_due_at END, export_give_up_at = CASE WHEN l.export_state <> 'pending' THEN l.export_give_up_at END,
                   export_attempts = CASE WHEN l.export_state <> 'pending' THEN l.export_attempts END, export_error = CASE WHEN l.export_state <> 'pending' THEN l.export_error END
             WHERE l.event_uuid = ANY (ids) AND l.erased_at IS NULL RETURNING l.event_uuid
        )
        SELECT coalesce(array_agg(event_uuid), '{}') INTO letters FROM gone;
        EXIT WHEN stored IS NULL AND pending IS NULL AND letters = '{}';
        erased := erased || stored || letters;
    END LOOP;
    -- Dead letters and attempts may be kept longer than deliveries.
    SELECT array_agg(id) INTO made FROM (SELECT h.id FROM postrider_internal.delivery_history h WHERE h.event_uuid = ANY (ids)
                                          UNION SELECT l.delivery_id FROM postrider_internal.dead_letters l WHERE l.event_uuid = ANY (ids)) d(id);
    UPDATE postrider_internal.delivery_attempts a SET error = NULL, request_headers = NULL, response_headers = NULL, response_excerpt = NULL
     WHERE a.delivery_id = ANY (made) OR a.batch_id = ANY (ARRAY (SELECT m.batch_id FROM postrider_internal.batch_members m WHERE m.delivery_id = ANY (made)));
    RETURN (SELECT count(DISTINCT e) FROM unnest(erased) e);
END $$;

CREATE FUNCTION postrider_internal.erase_event(system_id uuid, day date, actor text, address text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    topic text;
    erased bigint;
BEGIN
    SELECT t.name INTO topic FROM postrider_internal.events e JOIN postrider_internal.topics t ON t.id = e.topic_id
     WHERE e.id = system_id AND e.day BETWEEN coalesce(erase_event.day, '-infinity') AND coalesce(erase_event.day, 'infinity');
    IF NOT FOUND THEN
        SELECT l.topic INTO topic FROM postrider_internal.dead_letters l WHERE l.event_uuid = system_id LIMIT 1;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'P0002', MESSAGE = format('event %s does not exist', coalesce(system_id::text, 'NULL')), COLUMN = 'system_id',
            HINT = 'SELECT system_id FROM postrider.events lists those there are; it is not the publisher''s event_id.';
    END IF;
    erased := postrider_internal.erase_events(ARRAY [system_id], coalesce(erase_event.day, '-infinity'), actor, address);
    PERFORM postrider_internal.note_audit(actor, address, 'event_erased', topic, NULL, jsonb_build_object('systemId', system_id, 'events', erased));
    RETURN erased;
END $$;

CREATE FUNCTION postrider.cancel(delivery_id bigint) RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT postrider_internal.cancel(delivery_id, NULL, NULL) $$;

CREATE FUNCTION postrider.retry_now(delivery_id bigint) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT postrider_internal.retry_now(delivery_id, NULL, NULL) $$;

CREATE FUNCTION postrider.dead_letter_now(delivery_id bigint) RETURNS uuid LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT postrider_internal.dead_letter_now(delivery_id, NULL, NULL) $$;

CREATE FUNCTION postrider.pause(topic text, subscription text, stop_time_to_live boolean DEFAULT NULL) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT postrider_internal.pause(topic, subscription, stop_time_to_live, NULL, NULL) $$;

CREATE FUNCTION postrider.resume(topic text, subscription text) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT postrider_internal.resume(topic, subscription, NULL, NULL) $$;

CREATE FUNCTION postrider.release(topic text, subscription text) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT postrider_internal.release(topic, subscription, NULL, NULL) $$;

CREATE FUNCTION postrider.erase_event(system_id uuid, day date DEFAULT NULL) RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT postrider_internal.erase_event(system_id, day, NULL, NULL) $$;
-- +goose StatementEnd

REVOKE EXECUTE ON FUNCTION postrider.cancel(bigint), postrider.retry_now(bigint), postrider.dead_letter_now(bigint),
    postrider.pause(text, text, boolean), postrider.resume(text, text), postrider.release(text, text),
    postrider.erase_event(uuid, date) FROM PUBLIC;

COMMENT ON FUNCTION postrider.cancel(bigint) IS 'Ends a pending delivery: state canceled, reason CanceledByOperator, which it answers: canceled. On hold or not, alone or in a batch, which it leaves. An attempt that is under way, or begins within the next 100 ms, may still reach the endpoint; nothing of it is recorded, and a NOTICE says so. Commit soon: a transaction that idles for 5 s after it is ended.';
COMMENT ON FUNCTION postrider.retry_now(bigint) IS 'Makes a pending delivery''s next attempt due now; its count of attempts and its time to live stay. A member leaves its batch and goes alone. One that waits for admission stays behind that limit; one that is due already is left as it is. An error while an attempt is under way, and while its event subscription is on hold: resume or release that first.';
COMMENT ON FUNCTION postrider.dead_letter_now(bigint) IS 'Gives a pending delivery up: it becomes a dead letter, reason DeadLetteredByOperator, whose id it answers; also where the event subscription keeps no dead letters. For the rest as postrider.cancel().';
COMMENT ON FUNCTION postrider.pause(text, text, boolean) IS 'Holds an event subscription''s deliveries until postrider.resume(): none is attempted, none is lost. The next publish on every node obeys once this is committed; an attempt that begins within 100 ms of that, or is under way, finishes. stop_time_to_live: the pause does not count for their time to live; NULL leaves it as it is, at first false. Pausing what is paused changes no more than that.';
COMMENT ON FUNCTION postrider.resume(text, text) IS 'Ends a pause. What it held is released in waves, which begin within a second. Of a pause that stopped the time to live the deliveries'' age is corrected first, by the nodes, step by step; the pause holds until that is done. Resuming what is not paused is nothing.';
COMMENT ON FUNCTION postrider.release(text, text) IS 'Ends a probation without waiting for its probe; where the policy rests the endpoint as a whole, for all event subscriptions that share it. What is held is released in waves, which begin within a second. Releasing what is not on probation is nothing; an error while paused or not validated.';
COMMENT ON FUNCTION postrider.erase_event(uuid, date) IS 'Erases what an event says, everywhere: body and subject of the event and of its dead letters, what endpoints answered, and what went wrong, which may repeat it. What is pending of it is canceled first, reason EventErased. Ids, types, times, attempts and states stay; erased_at marks it, and its dead letters cannot be redelivered. Answers how many events were erased: 0 = it was before. day: its UTC day, which saves a look at the others. Exported dead letters and what endpoints keep are out of reach; an error while a dead letter of it is being exported.';

-- +goose Down
DROP FUNCTION postrider.erase_event(uuid, date);
DROP FUNCTION postrider.release(text, text);
DROP FUNCTION postrider.resume(text, text);
DROP FUNCTION postrider.pause(text, text, boolean);
DROP FUNCTION postrider.dead_letter_now(bigint);
DROP FUNCTION postrider.retry_now(bigint);
DROP FUNCTION postrider.cancel(bigint);
DROP FUNCTION postrider_internal.erase_event(uuid, date, text, text);
DROP FUNCTION postrider_internal.erase_events(uuid[], date, text, text);
DROP FUNCTION postrider_internal.refuse_exporting(uuid[]);
DROP FUNCTION postrider_internal.release(text, text, text, text);
DROP FUNCTION postrider_internal.move_time_to_live(bigint, integer, boolean);
DROP FUNCTION postrider_internal.resume(text, text, text, text);
DROP FUNCTION postrider_internal.pause(text, text, boolean, text, text);
DROP FUNCTION postrider_internal.find_subscription(text, text);
DROP FUNCTION postrider_internal.retry_now(bigint, text, text);
DROP FUNCTION postrider_internal.refuse_held(text, text, text);
DROP FUNCTION postrider_internal.dead_letter_now(bigint, text, text);
DROP FUNCTION postrider_internal.cancel(bigint, text, text);
DROP FUNCTION postrider_internal.cancel_pending(bigint, bigint, integer);
DROP FUNCTION postrider_internal.deletion_reason(bigint);
DROP FUNCTION postrider_internal.end_by_hand(bigint, text, text, text, text, text);
DROP FUNCTION postrider_internal.last_attempt(bigint, integer);
DROP FUNCTION postrider_internal.end_deliveries(postrider_internal.delivery_end[]);
DROP FUNCTION postrider_internal.take_token(postrider_internal.taken_delivery, text, text);
DROP FUNCTION postrider_internal.take_delivery(bigint);
DROP FUNCTION postrider_internal.refuse_delivery(bigint);
DROP FUNCTION postrider_internal.commit_soon();
DROP TYPE postrider_internal.delivery_end;
DROP TYPE postrider_internal.taken_delivery;
DROP INDEX postrider_internal.dead_letters_event_idx;
