-- +goose Up
-- Pause, resume, release and retry now.

-- +goose StatementBegin
-- The hold of an event subscription; NULL = none.
CREATE FUNCTION postrider_internal.hold_of(subscription_id bigint) RETURNS text LANGUAGE sql STABLE BEGIN ATOMIC
SELECT h.hold FROM postrider_internal.subscription_holds h WHERE h.subscription_id = $1;
END;

-- The hold of deliveries that are created without a job. Refilling checks it again.
CREATE FUNCTION postrider_internal.hold_without_job(subscription_id bigint) RETURNS text LANGUAGE sql STABLE
    BEGIN ATOMIC
SELECT h.delivery_hold FROM postrider_internal.subscription_holds h WHERE h.subscription_id = $1;
END;

-- Raises an error that an event subscription is on hold, with a hint what ends the hold.
CREATE FUNCTION postrider_internal.reject_held(topic text, subscription text, hold text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = hold,
        MESSAGE = format('event subscription "%s" of topic "%s" is ', subscription, topic)
               || CASE hold WHEN 'paused' THEN 'paused' WHEN 'probation' THEN 'in probation'
                   ELSE 'waiting for its endpoint''s validation' END,
        HINT = CASE hold WHEN 'paused' THEN format('SELECT postrider.resume(%L, %L) ends the pause.', topic,
            subscription)
                         WHEN 'probation' THEN format('SELECT postrider.release(%L, %L) ends the probation.', topic,
                             subscription)
                         ELSE 'See postrider.handshakes; POST /v1/topics/{topic}/subscriptions/{subscription}/validate '
                             'runs the handshake again.' END;
END $$;

-- Makes a delivery due now. Returns the delivery as it was; NULL = it is due already.
CREATE FUNCTION postrider_internal.make_due(delivery_id bigint) RETURNS postrider_internal.taken_delivery
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    t postrider_internal.taken_delivery := postrider_internal.take_delivery(delivery_id);
    held text := postrider_internal.hold_of(t.subscription_id);
    available boolean := (SELECT d.available_at IS NOT NULL FROM postrider_internal.deliveries d WHERE d.id = t.id);
    job bigint;
BEGIN
    IF t.job_state = 'running' THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('an attempt of delivery %s is in progress', t.id),
            CONSTRAINT = 'running',
            HINT = 'Wait for its outcome: SELECT state, last_outcome, next_attempt_at FROM postrider.deliveries '
                'shows it.';
    ELSIF t.deleted THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('event subscription "%s" of topic "%s" was deleted',
            t.subscription, t.topic), CONSTRAINT = 'deleted',
            HINT = 'Its deliveries are being canceled.';
    ELSIF held IS NOT NULL THEN
        PERFORM postrider_internal.reject_held(t.topic, t.subscription, held);
    ELSIF t.due <= clock_timestamp() AND (t.job_state IS NOT NULL OR t.job_id IS NULL) THEN
        RETURN NULL; -- a new job would only lose its place in the queue
    END IF;
    PERFORM postrider_internal.take_token(t, 'canceled', 'RetriedByOperator');
    IF t.hold IS NULL AND NOT available THEN
        job := nextval('postrider_internal.river_job_id_seq');
        INSERT INTO postrider_internal.new_jobs
        SELECT * FROM postrider_internal.attempt_job(job, now(), t.subscription_id, delivery => t.id,
            number => t.attempts + 1, reruns => CASE WHEN t.batch_id IS NULL THEN t.reruns END);
    END IF;
    -- The next refill releases it first: it is the oldest that is due.
    UPDATE postrider_internal.deliveries d SET job_id = job, batch_id = NULL, hold = t.hold, next_attempt_at = now(),
        not_before = NULL WHERE d.id = t.id;
    RETURN t;
END $$;

CREATE FUNCTION postrider_internal.retry_now(delivery_id bigint, actor text, address text) RETURNS void
LANGUAGE sql BEGIN ATOMIC
SELECT postrider_internal.note_audit(actor, address, 'delivery_retried', t.topic, t.subscription,
       jsonb_build_object('deliveryId', t.id))
  FROM postrider_internal.make_due(delivery_id) t WHERE t.id IS NOT NULL;
END;

CREATE FUNCTION postrider_internal.find_subscription(topic text, subscription text) RETURNS bigint LANGUAGE plpgsql
    STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found_id bigint;
BEGIN
    SELECT s.id INTO found_id FROM postrider_internal.event_subscriptions s JOIN postrider_internal.topics t
        ON t.id = s.topic_id
     WHERE t.name = topic AND t.deleted_at IS NULL AND s.name = subscription AND s.deleted_at IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'P0002', MESSAGE = format('topic "%s" has no event subscription "%s"', topic,
            subscription), COLUMN = 'subscription',
            HINT = 'SELECT topic, subscription FROM postrider.event_subscriptions lists those there are.';
    END IF;
    RETURN found_id;
END $$;

CREATE FUNCTION postrider_internal.pause(topic text, subscription text, stop_time_to_live boolean, actor text,
    address text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wanted bigint := postrider_internal.find_subscription(topic, subscription);
BEGIN
    PERFORM postrider_internal.commit_soon();
    PERFORM FROM postrider_internal.event_subscription_states st WHERE st.subscription_id = wanted
        AND st.resumed_at IS NOT NULL FOR UPDATE;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '55000',
            MESSAGE = format('event subscription "%s" of topic "%s" is still ending its last pause', subscription,
            topic), CONSTRAINT = 'resuming',
            HINT = 'Its deliveries hold meanwhile. Try again in a moment.';
    END IF;
    INSERT INTO postrider_internal.event_subscription_states AS st (subscription_id, paused_since, stop_time_to_live)
    VALUES (wanted, now(), coalesce(pause.stop_time_to_live, false))
        ON CONFLICT (subscription_id) DO UPDATE SET paused_since = coalesce(st.paused_since, now()), updated_at = now(),
           stop_time_to_live = CASE WHEN st.paused_since IS NULL THEN coalesce(pause.stop_time_to_live, false)
               ELSE coalesce(pause.stop_time_to_live, st.stop_time_to_live) END;
    PERFORM postrider_internal.note_audit(actor, address, 'subscription_paused', topic, subscription,
        jsonb_build_object('stopTimeToLive', pause.stop_time_to_live));
END $$;

CREATE FUNCTION postrider_internal.resume(topic text, subscription text, actor text, address text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wanted bigint := postrider_internal.find_subscription(topic, subscription);
BEGIN
    PERFORM postrider_internal.commit_soon();
    UPDATE postrider_internal.event_subscription_states st
       SET updated_at = now(), paused_since = CASE WHEN st.stop_time_to_live THEN st.paused_since END,
           resumed_at = CASE WHEN st.stop_time_to_live AND st.paused_since IS NOT NULL
               THEN coalesce(st.resumed_at, now()) END
     WHERE st.subscription_id = wanted;
    PERFORM postrider_internal.note_audit(actor, address, 'subscription_resumed', topic, subscription, NULL);
END $$;

-- The state's row is locked, so that each delivery is moved once: one that was pending before the pause by its whole
-- length, one that was published during the pause by the remainder. Publishes wait for that row, so a step does not
-- wait for a delivery that a consumer's open transaction has locked.
CREATE FUNCTION postrider_internal.move_time_to_live(subscription bigint, most integer, wait boolean) RETURNS boolean
LANGUAGE sql SET lock_timeout = '100ms' BEGIN ATOMIC
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
     WHERE d.id > state.moved_to AND d.time_to_live_since < state.resumed_at ORDER BY d.id LIMIT most
), moved AS (
    UPDATE postrider_internal.deliveries d
       SET time_to_live_since = d.time_to_live_since + (state.resumed_at - greatest(d.time_to_live_since,
           state.paused_since))
      FROM step, state WHERE d.id = step.id
), advanced AS (
    UPDATE postrider_internal.event_subscription_states st SET updated_at = now(), moved_to = (SELECT max(id) FROM step)
      FROM state WHERE st.subscription_id = state.subscription_id AND (SELECT count(*) FROM step) = most
), ended AS (
    UPDATE postrider_internal.event_subscription_states st
       SET updated_at = now(), moved_to = 0, paused_since = NULL, resumed_at = NULL, stop_time_to_live = false
      FROM state WHERE st.subscription_id = state.subscription_id AND (SELECT count(*) FROM step) < most
)
SELECT count(*) = most FROM step;
END;
-- +goose StatementEnd

COMMENT ON FUNCTION postrider_internal.move_time_to_live IS
    'Takes a pause that has stopped the time to live off the age of the next deliveries of an event subscription. '
        'Returns whether there may be more; else the pause is over. Without wait it does nothing while another '
        'transaction does the same.';

-- +goose StatementBegin
CREATE FUNCTION postrider_internal.release(topic text, subscription text, actor text, address text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wanted bigint := postrider_internal.find_subscription(topic, subscription);
    held text := postrider_internal.hold_of(wanted);
BEGIN
    IF held <> 'probation' THEN
        PERFORM postrider_internal.reject_held(topic, subscription, held);
    END IF;
    PERFORM postrider_internal.commit_soon();
    -- Locked in the order of the recorder: two transactions that lock both never deadlock.
    DELETE FROM postrider_internal.probations WHERE probation_key IN (
        SELECT r.probation_key
          FROM postrider_internal.event_subscriptions s
          JOIN postrider_internal.retry_policies p ON p.name = s.retry_policy
          JOIN postrider_internal.probations r
            ON r.probation_key = ANY (postrider_internal.probation_keys(p.settings #>> '{probation,scope}',
                   s.endpoint_hash, s.id))
         WHERE s.id = wanted AND r.since IS NOT NULL ORDER BY r.probation_key FOR UPDATE OF r);
    PERFORM postrider_internal.note_audit(actor, address, 'subscription_released', topic, subscription, NULL);
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION postrider_internal.release, postrider_internal.move_time_to_live, postrider_internal.resume,
    postrider_internal.pause, postrider_internal.find_subscription, postrider_internal.retry_now,
    postrider_internal.make_due, postrider_internal.reject_held, postrider_internal.hold_without_job,
    postrider_internal.hold_of;
