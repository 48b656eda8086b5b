-- +goose Up
-- How deliveries end outside the recorder. A delivery is taken by its token: first its job's row is locked, then its
-- batch, then the delivery. Only the transaction that deletes the job's row ends or changes the delivery. An attempt
-- whose job row is gone records nothing.

-- A delivery that is locked together with its job and its batch. job_id is the batch's job for a member. job_state is
-- NULL if there is no such row. reruns are those of the next attempt.
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

-- How one delivery ends; error and excerpt are of its last attempt, for a dead letter. attempts and last_outcome are
-- NULL if its last attempt is recorded already; otherwise that was a consumer's, which has no status.
CREATE TYPE postrider_internal.delivery_end AS (
    delivery_id    bigint,
    state          text,
    reason         text,
    dead_letter_id uuid,
    error          text,
    excerpt        bytea,
    attempts       integer,
    last_outcome   text
);

-- +goose StatementBegin
-- Raises the error with the reason why there is no such pending delivery.
CREATE FUNCTION postrider_internal.reject_delivery(delivery bigint) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ended text;
BEGIN
    SELECT h.state INTO ended FROM postrider_internal.delivery_history h WHERE h.id = delivery;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('delivery %s has ended: %s', delivery, ended),
            CONSTRAINT = 'ended',
            HINT = CASE ended WHEN 'dead_lettered' THEN 'postrider.dead_letters has the dead letter that it became.'
                ELSE 'Only a pending delivery can be acted on.' END;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'P0002', MESSAGE = format('delivery %s does not exist', coalesce(delivery::text,
        'NULL')), COLUMN = 'delivery_id',
        HINT = 'SELECT delivery_id FROM postrider.deliveries WHERE state = ''pending'' lists those that can be '
            'acted on.';
END $$;

-- Raises the error that another transaction has locked a delivery or its job for too long: a consumer's, perhaps. The
-- holder of a row's lock is in xmax, unless there are several.
CREATE FUNCTION postrider_internal.reject_locked(delivery bigint) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    holder record;
BEGIN
    SELECT a.pid, format('process %s (%s, role %s)', a.pid, coalesce(nullif(a.application_name, ''), 'unnamed'),
               coalesce(a.usename, '-')) AS name INTO holder
      FROM (SELECT d.xmax FROM postrider_internal.deliveries d WHERE d.id = delivery
             UNION ALL
            SELECT j.xmax FROM postrider_internal.river_job j
             WHERE j.id = (SELECT coalesce(d.job_id, b.job_id) FROM postrider_internal.deliveries d
                             LEFT JOIN postrider_internal.batches b ON b.id = d.batch_id WHERE d.id = delivery)) r
      JOIN pg_locks l ON l.locktype = 'transactionid' AND l.transactionid = r.xmax AND l.granted
      JOIN pg_stat_activity a ON a.pid = l.pid
     WHERE l.pid <> pg_backend_pid() LIMIT 1;
    RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = 'locked',
        MESSAGE = format('delivery %s is locked by %s', delivery, coalesce(holder.name, 'another transaction')),
        HINT = 'A consumer receives or settles it in a transaction that is open. Try again when that has ended'
            || coalesce(format('; SELECT pg_terminate_backend(%s) ends it.', holder.pid), '.');
END $$;

-- Locks a delivery with its job and its batch. If these changed before they were locked (an attempt was recorded, a
-- hold began), the locks are released and it starts again: waiting for another job with a locked delivery could
-- deadlock. It waits less than the lock_timeout of a node's sessions, 2 s.
CREATE FUNCTION postrider_internal.take_delivery(delivery bigint) RETURNS postrider_internal.taken_delivery
LANGUAGE plpgsql SET lock_timeout = '1500ms' SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    seen record;
    job record;
    t postrider_internal.taken_delivery;
BEGIN
    FOR try IN 1 .. 20 LOOP
        BEGIN
            SELECT d.job_id, d.batch_id, coalesce(d.job_id, b.job_id) AS token, b.hold INTO seen
              FROM postrider_internal.deliveries d LEFT JOIN postrider_internal.batches b ON b.id = d.batch_id
              WHERE d.id = delivery;
            IF NOT FOUND THEN
                PERFORM postrider_internal.reject_delivery(delivery);
            END IF;
            -- While a consumer has locked the delivery, its attempt is in progress.
            SELECT CASE j.kind WHEN 'lock' THEN 'running' ELSE j.state::text END AS state,
                   coalesce((j.args ->> 'r')::integer, 0) + j.attempt AS reruns, j.scheduled_at INTO job
              FROM postrider_internal.river_job j WHERE j.id = seen.token FOR UPDATE;
            PERFORM FROM postrider_internal.batches b WHERE b.id = seen.batch_id FOR UPDATE;
            SELECT d.id, d.subscription_id, tp.name, s.name, s.deleted_at IS NOT NULL, d.attempts, d.batch_id,
                   coalesce(d.hold, b.hold), seen.token, job.state, job.reruns,
                   coalesce(job.scheduled_at, b.next_attempt_at, d.next_attempt_at)
              INTO t
              FROM postrider_internal.deliveries d
              JOIN postrider_internal.event_subscriptions s ON s.id = d.subscription_id
              JOIN postrider_internal.topics tp ON tp.id = d.topic_id
              LEFT JOIN postrider_internal.batches b ON b.id = d.batch_id
             WHERE d.id = delivery AND d.job_id IS NOT DISTINCT FROM seen.job_id
               AND d.batch_id IS NOT DISTINCT FROM seen.batch_id
               AND coalesce(d.job_id, b.job_id) IS NOT DISTINCT FROM seen.token
                   AND (b.id IS NULL OR b.state = 'pending')
               FOR UPDATE OF d;
            IF FOUND THEN
                RETURN t;
            END IF;
            RAISE EXCEPTION USING ERRCODE = 'PRMOV', MESSAGE = 'the delivery moved on';
        EXCEPTION
            WHEN SQLSTATE 'PRMOV' THEN
                NULL;
            WHEN lock_not_available THEN
                PERFORM postrider_internal.reject_locked(delivery);
        END;
    END LOOP;
    RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = format('delivery %s changes all the time', delivery),
        HINT = 'Try again.';
END $$;

-- Takes a delivery's token: its job row is deleted. A member leaves its batch, which keeps its job. With the last
-- member the job is deleted too, and the batch ends in this state.
CREATE FUNCTION postrider_internal.take_token(t postrider_internal.taken_delivery, state text, reason text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    others boolean := EXISTS (SELECT FROM postrider_internal.deliveries d WHERE d.batch_id = t.batch_id
        AND d.id <> t.id);
BEGIN
    PERFORM postrider_internal.commit_soon();
    INSERT INTO postrider_internal.left_members (batch_id, delivery_id, left_at, left_after, left_reason)
    SELECT t.batch_id, t.id, now(), t.attempts, reason WHERE t.batch_id IS NOT NULL;
    UPDATE postrider_internal.batches b SET members = b.members - 1 WHERE b.id = t.batch_id;
    IF NOT others THEN
        UPDATE postrider_internal.batches b SET state = take_token.state, finished_at = now(), job_id = NULL,
            hold = NULL, next_attempt_at = NULL WHERE b.id = t.batch_id;
        DELETE FROM postrider_internal.river_job j WHERE j.id = t.job_id;
    END IF;
END $$;

-- How a delivery ends: it moves to the history and is counted, and a dead letter copies its event. The caller has
-- fenced the deliveries: its transaction has deleted their job rows or locked their own rows. The recorder includes
-- sql/ends.sql and sql/dead_letters.sql in its own statements: this call would add 0.2 ms to the 0.4 ms of one result.
CREATE FUNCTION postrider_internal.end_deliveries(ends postrider_internal.delivery_end[]) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ended bigint;
    failed bigint;
BEGIN
WITH finished AS (
    DELETE FROM postrider_internal.deliveries d USING unnest(ends) e
     WHERE d.id = e.delivery_id AND d.id = ANY (ARRAY (SELECT u.delivery_id FROM unnest(ends) u))
    RETURNING d.id, d.subscription_id, d.topic_id, d.event_uuid, d.event_day, d.reruns, d.batch_id,
              CASE WHEN e.last_outcome IS NULL THEN d.last_status END AS last_status, d.time_to_live_since,
              d.first_attempt_at, d.last_attempt_at, d.redelivered_from, d.operation_id,
              coalesce(e.attempts, d.attempts) AS attempts, coalesce(e.last_outcome, d.last_outcome) AS last_outcome,
              e.state, e.reason, e.dead_letter_id, e.error, e.excerpt,
              (SELECT s.retry_policy FROM postrider_internal.event_subscriptions s WHERE s.id = d.subscription_id)
                  AS retry_policy, 1::float8 AS time_scale
),
-- ends.sql
,
-- dead_letters.sql
SELECT count(*), count(*) FILTER (WHERE f.state IN ('dead_lettered', 'dropped')) INTO ended, failed FROM finished f;
    IF failed > 0 THEN
        PERFORM postrider_internal.note_ends(ARRAY (SELECT u.delivery_id FROM unnest(ends) u));
    END IF;
    RETURN ended;
END $$;
-- +goose StatementEnd

COMMENT ON FUNCTION postrider_internal.end_deliveries IS
    'Ends deliveries that the caller has fenced: history, counts, dead letters, notices. Returns how many there were.';

-- +goose StatementBegin
-- An event subscription that was deleted after its expiration time has expired, whatever deleted it.
CREATE FUNCTION postrider_internal.deletion_reason(subscription bigint) RETURNS text LANGUAGE sql STABLE BEGIN ATOMIC
SELECT CASE WHEN s.expiration_time_utc <= s.deleted_at THEN 'EventSubscriptionExpired'
    ELSE 'EventSubscriptionDeleted' END
  FROM postrider_internal.event_subscriptions s WHERE s.id = subscription;
END;

-- A delivery is canceled only together with its job row, or its batch and the batch's job row. One whose attempt is
-- being recorded at the same time has another job row afterward; the next call cancels it. A delivery without its job
-- row, which should not exist, is canceled too. One that a consumer's open transaction has locked is left to a later
-- call. A job of a kind that only a newer version knows is left to that version's nodes.
CREATE FUNCTION postrider_internal.cancel_pending(
    subscription bigint, after bigint, most integer, OUT last bigint, OUT met bigint, OUT canceled bigint
) LANGUAGE sql BEGIN ATOMIC
WITH pending AS MATERIALIZED (
    SELECT d.id, d.job_id, d.batch_id, b.id AS pending_batch, coalesce(d.job_id, b.job_id) AS token
      FROM postrider_internal.deliveries d
      LEFT JOIN postrider_internal.batches b ON b.id = d.batch_id AND b.state = 'pending'
     WHERE d.subscription_id = subscription AND d.id > after ORDER BY d.id LIMIT most
), free AS (
    SELECT j.id FROM postrider_internal.river_job j
     WHERE j.id IN (SELECT p.token FROM pending p) AND j.kind IN ('deliver', 'batch', 'lock') ORDER BY j.id
     FOR UPDATE SKIP LOCKED
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
     ORDER BY d.id FOR UPDATE OF d SKIP LOCKED
), ended AS MATERIALIZED (
    SELECT postrider_internal.end_deliveries(array_agg(
               ROW (l.id, 'canceled', r.reason, NULL, NULL, NULL, NULL, NULL)::postrider_internal.delivery_end
           )) AS count
      FROM locked l, postrider_internal.deletion_reason(subscription) AS r(reason)
)
SELECT coalesce(max(p.id), 0), count(*), (SELECT e.count FROM ended e) FROM pending p;
END;
-- +goose StatementEnd

COMMENT ON FUNCTION postrider_internal.deletion_reason IS
    'Why deliveries of a deleted event subscription are canceled; NULL = there is no such event subscription.';
COMMENT ON FUNCTION postrider_internal.cancel_pending IS
    'Cancels pending deliveries of a deleted event subscription: those after a delivery id, in the order of their ids, '
        'with the other members of their batches. Returns the last id it met, how many it met, and how many it '
        'canceled.';

-- +goose StatementBegin
-- Error and response of the last attempt of a delivery, alone or in a batch.
CREATE FUNCTION postrider_internal.last_attempt(delivery bigint, number integer)
RETURNS TABLE (error text, response_excerpt bytea) LANGUAGE sql STABLE BEGIN ATOMIC
SELECT a.error, a.response_excerpt FROM postrider_internal.delivery_attempts a
WHERE a.delivery_id = last_attempt.delivery AND a.number = last_attempt.number AND NOT a.late
 UNION ALL
SELECT a.error, a.response_excerpt FROM postrider_internal.batch_members m JOIN postrider_internal.delivery_attempts a
    ON a.batch_id = m.batch_id
 WHERE m.delivery_id = last_attempt.delivery AND a.number = last_attempt.number AND a.number <= coalesce(m.left_after,
     a.number) AND NOT a.late
 LIMIT 1;
END;

-- Ends one delivery by an operator's command. Without an action it is part of a larger command, which has its own audit
-- row. If its request is in progress, a notice reports that the request may still arrive.
CREATE FUNCTION postrider_internal.end_by_hand(delivery bigint, state text, reason text, action text, actor text,
    address text) RETURNS uuid LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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
        SELECT a.error, a.response_excerpt INTO error, response
        FROM postrider_internal.last_attempt(t.id, t.attempts) a;
    END IF;
    PERFORM postrider_internal.take_token(t, state, reason);
    PERFORM postrider_internal.end_deliveries(
        ARRAY [ROW (t.id, state, reason, letter, error, response, NULL, NULL)::postrider_internal.delivery_end]);
    IF action IS NOT NULL THEN
        PERFORM postrider_internal.note_audit(actor, address, action, t.topic, t.subscription,
            jsonb_build_object('deliveryId', t.id, 'deadLetterId', letter));
    END IF;
    IF t.job_state = 'running' THEN
        RAISE NOTICE
            'an attempt of delivery % is in progress: its event may still be processed, and nothing of it is recorded',
            t.id;
    END IF;
    RETURN letter;
END $$;

CREATE FUNCTION postrider_internal.cancel(delivery_id bigint, actor text, address text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM postrider_internal.end_by_hand(delivery_id, 'canceled', 'CanceledByOperator', 'delivery_canceled', actor,
        address);
    RETURN 'canceled';
END $$;

CREATE FUNCTION postrider_internal.dead_letter_now(delivery_id bigint, actor text, address text) RETURNS uuid
LANGUAGE sql
RETURN postrider_internal.end_by_hand(delivery_id, 'dead_lettered', 'DeadLetteredByOperator', 'delivery_dead_lettered',
    actor, address);
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION postrider_internal.dead_letter_now, postrider_internal.cancel, postrider_internal.end_by_hand,
    postrider_internal.last_attempt, postrider_internal.cancel_pending, postrider_internal.deletion_reason,
    postrider_internal.end_deliveries, postrider_internal.take_token, postrider_internal.take_delivery,
    postrider_internal.reject_locked, postrider_internal.reject_delivery;
DROP TYPE postrider_internal.delivery_end, postrider_internal.taken_delivery;
