-- +goose Up
-- Pull delivery. A pending delivery of an event subscription with delivery mode Queue is available (no job, visible
-- from next_attempt_at), or locked by a consumer, or on hold. A lock is a delivery attempt, and its job is the token:
-- a job of kind lock, due when the lock ends. Only the statement that deletes the job's row ends the lock, so that
-- either the consumer's call or the end of its time counts. Nodes and consumers in SQL use the same functions. They
-- append to tables that deliveries share and change only rows of their deliveries: a consumer's transaction that stays
-- open delays nothing else.

-- What applies to a receive from an event subscription. hold is NULL if consumers may receive. queued is false if the
-- delivery mode is Push: consumers receive nothing more, and settle what they received before. The times to live are
-- shorter in `postrider dev --time-scale`. The condition on deleted_at and LIMIT let every plan find the event
-- subscription and its topic by their ids. While a table has few rows, PostgreSQL otherwise reads a whole index of it.
CREATE VIEW postrider_internal.pull_settings AS
SELECT s.id AS subscription_id, s.pulled AS queued,
       make_interval(secs => coalesce((o.settings #>> '{queue,receiveLockDurationInSeconds}')::integer, 60))
       AS lock_duration,
       postrider_internal.max_attempts(o.attempts, p) AS max_delivery_count,
       postrider_internal.expires_at(0, 'epoch', (s.settings #>> '{retryPolicy,eventTimeToLiveInMinutes}')::integer,
           t.event_retention_in_days, (SELECT coalesce(max(n.time_scale), 1) FROM postrider_internal.nodes n), p, NULL)
           - 'epoch'::timestamptz AS time_to_live,
       coalesce(s.settings #>> '{deadLetterDestination,endpointType}',
                CASE WHEN s.settings ->> 'behavior' = 'documented' AND p.settings ->> 'deadLetterDefault' = 'none'
                     THEN 'None' END)
           IS NOT DISTINCT FROM 'None' AS drops,
       (SELECT st.hold FROM postrider_internal.event_subscription_states st WHERE st.subscription_id = s.id) AS hold
  FROM postrider_internal.event_subscriptions s
  JOIN postrider_internal.retry_policies p ON p.name = s.retry_policy
 CROSS JOIN LATERAL (
       SELECT t.event_retention_in_days FROM postrider_internal.topics t
        WHERE t.id = s.topic_id AND s.deleted_at IS NULL LIMIT 1) t
 CROSS JOIN LATERAL (
       SELECT s.settings -> 'deliveryConfiguration' AS settings,
              (s.settings #>> '{retryPolicy,maxDeliveryAttempts}')::integer AS attempts) o;

-- What a consumer receives.
CREATE TYPE postrider_internal.received_delivery AS (
    delivery_id     bigint,
    lock_id         uuid,
    delivery_count  integer,
    locked_until    timestamptz,
    schema          text,
    event_id        text,
    body            bytea,
    event_type      text,
    subject         text,
    source          text,
    data_version    text,
    event_time      timestamptz
);

-- +goose StatementBegin
-- NULL if there is no such event subscription. Its plan is kept, because each receive and each settlement reads it.
-- Its callers have disabled nested loops, and a hash join would read all retry policies.
CREATE FUNCTION postrider_internal.pull_settings_of(subscription bigint) RETURNS postrider_internal.pull_settings
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_nestloop = on
    SET jit = off SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    q postrider_internal.pull_settings;
BEGIN
    SELECT * INTO q FROM postrider_internal.pull_settings s WHERE s.subscription_id = subscription;
    RETURN q;
END $$;

-- Ends available deliveries that the caller has locked, and that were received as often as is allowed: the limit was
-- higher then, or they were sent before the delivery mode was Queue. With the settings of its caller, a hash join would
-- read all attempts of batches for each delivery.
CREATE FUNCTION postrider_internal.end_exhausted(ids bigint[], drops boolean) RETURNS void LANGUAGE plpgsql
    SET plan_cache_mode = force_custom_plan SET enable_nestloop = on SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM postrider_internal.end_deliveries(array_agg(
        ROW (d.id, CASE WHEN drops THEN 'dropped' ELSE 'dead_lettered' END, 'MaxDeliveryAttemptsExceeded',
             CASE WHEN NOT drops THEN postrider_internal.new_uuid() END, a.error, a.response_excerpt, NULL,
             NULL)::postrider_internal.delivery_end))
      FROM postrider_internal.deliveries d
      LEFT JOIN LATERAL postrider_internal.last_attempt(d.id, d.attempts) a ON true
     WHERE d.id = ANY (ids);
END $$;

-- Locks up to "most" available deliveries for a consumer, and up to "most_bytes" of their events but at least one: the
-- first that became visible, first. Those without a receive left end instead. Deliveries that other transactions have
-- locked are skipped. Its plans are kept, except the last: planning took 0.8 of the 6.4 ms of 100 deliveries. Only
-- lookups by key and the plan that reads the deliveries in this order are allowed: without statistics, PostgreSQL
-- sorted the whole backlog.
CREATE FUNCTION postrider_internal.receive_deliveries(subscription bigint, most integer, most_bytes bigint,
    lock_duration interval, consumer text) RETURNS SETOF postrider_internal.received_delivery LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan SET jit = off SET enable_sort = off SET enable_bitmapscan = off
    SET enable_seqscan = off SET enable_nestloop = off SET enable_mergejoin = off
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    q postrider_internal.pull_settings := postrider_internal.pull_settings_of(subscription);
    moment timestamptz := clock_timestamp();
    until timestamptz := moment + coalesce(lock_duration, q.lock_duration);
    ids bigint[];
    locks uuid[];
    counts integer[];
    events uuid[];
    days date[];
    first_day date;
    last_day date;
    exhausted bigint[];
BEGIN
    IF q.queued IS NOT TRUE OR q.hold IS NOT NULL THEN
        RETURN;
    END IF;
    -- A receive ends at most 20 times "most" deliveries, so that it does not run into its time-out.
    FOR round IN 1 .. 20 LOOP
        WITH visible AS MATERIALIZED (
            SELECT d.id, d.attempts, d.event_uuid, d.event_day, d.event_bytes, d.available_at
              FROM postrider_internal.deliveries d
             WHERE d.subscription_id = subscription AND d.available_at <= moment
               AND d.time_to_live_since + q.time_to_live > moment -- the index by age would read all of them
             ORDER BY d.available_at, d.id LIMIT most FOR UPDATE SKIP LOCKED
        ), taken AS MATERIALIZED (
            SELECT v.*, nextval('postrider_internal.river_job_id_seq') AS job_id, gen_random_uuid() AS lock_id
              FROM (SELECT v.*, sum(v.event_bytes) OVER (ORDER BY v.available_at, v.id) AS bytes
                      FROM visible v WHERE (v.attempts >= q.max_delivery_count) IS NOT TRUE) v
             WHERE v.bytes <= most_bytes OR v.bytes = v.event_bytes -- the first one
        ), locked AS (
            UPDATE postrider_internal.deliveries d
               SET job_id = t.job_id, first_attempt_at = coalesce(d.first_attempt_at, moment), last_attempt_at = moment
              FROM taken t WHERE d.id = t.id AND d.id = ANY (ARRAY (SELECT u.id FROM taken u))
        ), jobs AS (
            INSERT INTO postrider_internal.new_jobs
            SELECT j.*
              FROM taken t, postrider_internal.new_job(
                   t.job_id, 'lock',
                   jsonb_build_object('d', t.id, 's', subscription, 'n', t.attempts + 1, 'l', t.lock_id,
                                      'f', extract(epoch FROM moment), 'c', consumer), until) j
        )
        SELECT array_agg(t.id), array_agg(t.lock_id), array_agg(t.attempts + 1), array_agg(t.event_uuid),
               array_agg(t.event_day), min(t.event_day), max(t.event_day),
               (SELECT array_agg(v.id) FROM visible v WHERE v.attempts >= q.max_delivery_count)
          INTO ids, locks, counts, events, days, first_day, last_day, exhausted
          FROM taken t;
        EXIT WHEN exhausted IS NULL;
        PERFORM postrider_internal.end_exhausted(exhausted, q.drops);
        EXIT WHEN ids IS NOT NULL;
    END LOOP;
    -- This plan is not kept: it has, and locks, only the days between the bounds. A kept plan has the partitions of all
    -- days, and each execution locks them all. Without a sort, it would be a nested loop over deliveries and events.
    PERFORM set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_sort', 'on', true);
    RETURN QUERY
    SELECT t.id, t.lock_id, t.delivery_count, until, e.schema, e.event_id, e.body, e.event_type, e.subject, e.source,
           e.data_version, e.event_time
      FROM unnest(ids, locks, counts, events, days)
           WITH ORDINALITY AS t(id, lock_id, delivery_count, event, day, position)
      JOIN postrider_internal.events e ON e.id = t.event AND e.day = t.day
     WHERE e.id = ANY (events) AND e.day BETWEEN first_day AND last_day AND e.erased_at IS NULL
     ORDER BY t.position;
END $$;

-- The jobs of locks, and the positions of their tokens, with the rows of the jobs locked. "subscription" NULL: of any
-- event subscription. If "unexpired", a lock whose time has ended does not count, though it may still be there.
CREATE FUNCTION postrider_internal.take_locks(subscription bigint, deliveries bigint[], locks uuid[], unexpired boolean)
RETURNS TABLE (token bigint, job_id bigint) LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_nestloop = off
    SET enable_mergejoin = off SET jit = off SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    jobs bigint[];
BEGIN
    SELECT array_agg(d.job_id) INTO jobs FROM postrider_internal.deliveries d WHERE d.id = ANY (take_locks.deliveries);
    RETURN QUERY
    SELECT t.position, j.id
      FROM postrider_internal.river_job j
      JOIN unnest(deliveries, locks) WITH ORDINALITY AS t(delivery, lock, position)
           ON j.args ->> 'd' = t.delivery::text AND j.args ->> 'l' = t.lock::text
     WHERE j.id = ANY (jobs) AND j.kind = 'lock' AND (NOT unexpired OR j.scheduled_at > moment)
       AND j.args ->> 's' = coalesce(subscription::text, j.args ->> 's')
     ORDER BY j.id FOR UPDATE OF j;
END $$;

-- Ends the locks of these jobs: acknowledged, released, rejected, expired, or returned (no consumer got the events, so
-- that nothing counts). A delivery becomes visible again after "delay", or ends: after its last delivery count, or
-- its time to live. Returns how many locks ended. Its plans are kept, and only lookups by key are allowed: planning
-- took half of the time of 100 locks. The kept plan of end_deliveries has the events of all days: each call locks two
-- objects of each kept day, and the first call of a session four.
CREATE FUNCTION postrider_internal.end_locks(jobs bigint[], how text, delay interval, node text) RETURNS bigint
LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_nestloop = off
    SET enable_mergejoin = off SET jit = off SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    ended bigint;
    ends postrider_internal.delivery_end[];
BEGIN
    WITH gone AS MATERIALIZED (
        DELETE FROM postrider_internal.river_job j WHERE j.id = ANY (jobs) AND j.kind = 'lock'
        RETURNING j.id, (j.args ->> 'd')::bigint AS delivery_id, (j.args ->> 's')::bigint AS subscription_id,
                  (j.args ->> 'n')::integer AS number, to_timestamp((j.args ->> 'f')::float8) AS started_at
    ), settings AS MATERIALIZED (
        SELECT s.id, q.max_delivery_count, q.time_to_live, q.drops
          FROM (SELECT DISTINCT g.subscription_id AS id FROM gone g) s
         CROSS JOIN LATERAL postrider_internal.pull_settings_of(s.id) q
    ), decided AS MATERIALIZED (
        SELECT g.*, d.topic_id, d.next_attempt_at AS due_at, d.last_hold, coalesce(q.drops, false) AS drops,
               least(greatest(d.next_attempt_at, moment + delay), d.time_to_live_since + q.time_to_live) AS next_at,
               CASE WHEN how IN ('acknowledged', 'returned') THEN NULL
                    WHEN how = 'rejected' THEN 'RejectedByConsumer'
                    WHEN g.number >= q.max_delivery_count THEN 'MaxDeliveryAttemptsExceeded'
                    WHEN d.time_to_live_since <= moment - q.time_to_live THEN 'TimeToLiveExceeded' END AS reason
          FROM gone g
          JOIN postrider_internal.deliveries d ON d.id = g.delivery_id AND d.job_id = g.id
          LEFT JOIN settings q ON q.id = g.subscription_id
         WHERE d.id = ANY (ARRAY (SELECT u.delivery_id FROM gone u))
    ), settled AS MATERIALIZED (
        SELECT d.*, CASE WHEN how = 'acknowledged' THEN 'delivered' WHEN d.reason IS NULL THEN NULL
                         WHEN d.drops THEN 'dropped' ELSE 'dead_lettered' END AS state,
               CASE WHEN how = 'expired' THEN 'Event was not acknowledged nor rejected.'
                    WHEN how = 'released' THEN 'Event was released.'
                    WHEN how = 'rejected' THEN 'Event was rejected.' END AS error,
               greatest(moment - d.started_at, '0') AS took
          FROM decided d
    ), attempts AS (
        INSERT INTO postrider_internal.delivery_attempts (day, delivery_id, subscription_id, job_id, number, due_at,
               started_at, duration_us, outcome, error, verdict, next_attempt_at, rule, hold, node)
        SELECT (now() AT TIME ZONE 'UTC')::date, j.delivery_id, j.subscription_id, j.id, j.number, j.due_at,
               j.started_at, extract(epoch FROM j.took) * 1000000, initcap(how), j.error,
               CASE j.state WHEN 'delivered' THEN 'deliver' WHEN 'dropped' THEN 'drop'
                            WHEN 'dead_lettered' THEN 'dead_letter' ELSE 'retry' END,
               CASE WHEN j.state IS NULL THEN j.next_at END,
               CASE how WHEN 'expired' THEN 'the lock expired' ELSE how || ' by the consumer' END
               || CASE j.reason WHEN 'MaxDeliveryAttemptsExceeded' THEN ', after its last delivery'
                                WHEN 'TimeToLiveExceeded' THEN ', after its time to live' ELSE '' END,
               j.last_hold, node
          FROM settled j WHERE how <> 'returned'
    ), counted AS (
        INSERT INTO postrider_internal.rollup_deltas (entries)
        SELECT array_agg(postrider_internal.count_entry(c.topic_id, c.subscription_id, 'attempt', c.count,
                                                        initcap(how), c.bucket))
          FROM (SELECT j.topic_id, j.subscription_id, count(*) AS count,
                       postrider_internal.latency_bucket((extract(epoch FROM j.took) * 1000000)::bigint) AS bucket
                  FROM settled j WHERE how <> 'returned' GROUP BY 1, 2, 4) c
        HAVING count(*) > 0
    ), again AS (
        UPDATE postrider_internal.deliveries d
           SET job_id = NULL, attempts = CASE how WHEN 'returned' THEN d.attempts ELSE j.number END,
               last_outcome = CASE how WHEN 'returned' THEN d.last_outcome ELSE initcap(how) END,
               last_status = CASE how WHEN 'returned' THEN d.last_status END,
               first_attempt_at = CASE WHEN how <> 'returned' OR d.attempts > 0 THEN d.first_attempt_at END,
               last_attempt_at = CASE WHEN how <> 'returned' OR d.attempts > 0 THEN d.last_attempt_at END,
               next_attempt_at = CASE WHEN delay > '0' THEN j.next_at ELSE d.next_attempt_at END, last_hold = NULL
          FROM settled j
         WHERE d.id = j.delivery_id AND j.state IS NULL
           AND d.id = ANY (ARRAY (SELECT u.delivery_id FROM settled u WHERE u.state IS NULL))
    )
    SELECT (SELECT count(*) FROM gone),
           array_agg(ROW (j.delivery_id, j.state, j.reason,
                          CASE j.state WHEN 'dead_lettered' THEN postrider_internal.new_uuid() END, j.error, NULL,
                          j.number, initcap(how))::postrider_internal.delivery_end) FILTER (WHERE j.state IS NOT NULL)
      INTO ended, ends FROM settled j;
    IF ends IS NOT NULL THEN
        PERFORM postrider_internal.end_deliveries(ends);
    END IF;
    RETURN ended;
END $$;

-- Ends the locks of tokens, and returns the positions of those that it ended. The others are lost: their locks have
-- ended, or another consumer has the event.
CREATE FUNCTION postrider_internal.settle_locks(subscription bigint, deliveries bigint[], locks uuid[], how text,
    delay interval, unexpired boolean, node text) RETURNS bigint[] LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    positions bigint[];
    jobs bigint[];
BEGIN
    SELECT coalesce(array_agg(t.token ORDER BY t.token), '{}'), coalesce(array_agg(t.job_id), '{}')
      INTO positions, jobs
      FROM postrider_internal.take_locks(subscription, deliveries, locks, unexpired) t;
    PERFORM postrider_internal.end_locks(jobs, how, delay, node);
    RETURN positions;
END $$;

-- Gives locks their whole duration again, from now on, and returns the positions of their tokens. Each lock gets a new
-- job: a job's row never serves twice. A lock can be renewed within an hour of its receive.
CREATE FUNCTION postrider_internal.renew_locks(subscription bigint, deliveries bigint[], locks uuid[],
    lock_duration interval, unexpired boolean) RETURNS bigint[] LANGUAGE sql BEGIN ATOMIC
WITH taken AS MATERIALIZED (
    SELECT * FROM postrider_internal.take_locks(subscription, deliveries, locks, unexpired)
), gone AS (
    DELETE FROM postrider_internal.river_job j USING taken t
     WHERE j.id = ANY (ARRAY (SELECT u.job_id FROM taken u)) AND j.id = t.job_id
       AND (j.args ->> 'f')::float8 > extract(epoch FROM clock_timestamp()) - 3600
    RETURNING t.token, j.id, j.args
), renewed AS MATERIALIZED (
    SELECT g.*, nextval('postrider_internal.river_job_id_seq') AS job_id,
           clock_timestamp() + coalesce(renew_locks.lock_duration, q.lock_duration, '60 seconds') AS until
      FROM gone g
     CROSS JOIN LATERAL postrider_internal.pull_settings_of((g.args ->> 's')::bigint) q
), moved AS (
    UPDATE postrider_internal.deliveries d SET job_id = r.job_id
      FROM renewed r WHERE d.id = (r.args ->> 'd')::bigint AND d.job_id = r.id AND d.id = ANY (deliveries)
), jobs AS (
    INSERT INTO postrider_internal.new_jobs
    SELECT j.* FROM renewed r, postrider_internal.new_job(r.job_id, 'lock', r.args, r.until) j
)
SELECT coalesce(array_agg(r.token ORDER BY r.token), '{}') FROM renewed r;
END;

-- Ends up to "most" locks whose time has ended, and returns how many. Locks that a consumer is ending are skipped.
CREATE FUNCTION postrider_internal.expire_locks(most integer, node text) RETURNS bigint LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    jobs bigint[];
BEGIN
    SELECT array_agg(due.id) INTO jobs
      FROM (SELECT j.id FROM postrider_internal.river_job j
             WHERE j.state = 'scheduled' AND j.queue = 'locks' AND j.priority = 1 AND j.scheduled_at <= moment
             ORDER BY j.scheduled_at, j.id LIMIT most FOR UPDATE SKIP LOCKED) due;
    IF jobs IS NULL THEN
        RETURN 0;
    END IF;
    RETURN postrider_internal.end_locks(jobs, 'expired', '0', node);
END $$;

-- Ends up to "most" available deliveries of each event subscription whose time to live has passed. Where the mode is no
-- longer Queue, it puts as many on hold, for the release that gives them jobs. Returns how many deliveries it changed.
CREATE FUNCTION postrider_internal.tend_available(most integer) RETURNS bigint LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    q record;
    ends postrider_internal.delivery_end[];
    changed bigint := 0;
    held bigint;
BEGIN
    -- Every node calls it each second, and the next statement takes up to 11 ms to plan. ORDER BY makes PostgreSQL use
    -- the index.
    PERFORM FROM postrider_internal.deliveries d WHERE d.available_at IS NOT NULL ORDER BY d.subscription_id LIMIT 1;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    -- It jumps along the index of available deliveries, with one lookup for each event subscription.
    FOR q IN
        WITH RECURSIVE jump(id) AS (
            (SELECT d.subscription_id FROM postrider_internal.deliveries d
              WHERE d.available_at IS NOT NULL ORDER BY d.subscription_id LIMIT 1)
            UNION ALL
            SELECT (SELECT d.subscription_id FROM postrider_internal.deliveries d
                     WHERE d.available_at IS NOT NULL AND d.subscription_id > jump.id
                     ORDER BY d.subscription_id LIMIT 1)
              FROM jump WHERE jump.id IS NOT NULL
        )
        SELECT jump.id, s.queued IS TRUE AS queued, s.time_to_live, s.drops
          FROM jump LEFT JOIN postrider_internal.pull_settings s ON s.subscription_id = jump.id
         WHERE jump.id IS NOT NULL
           AND (s.queued IS NOT TRUE
                OR EXISTS (SELECT FROM postrider_internal.deliveries d
                            WHERE d.subscription_id = jump.id AND d.available_at IS NOT NULL
                              AND d.time_to_live_since <= moment - s.time_to_live)
                AND NOT EXISTS (SELECT FROM postrider_internal.event_subscription_states st
                                 WHERE st.subscription_id = jump.id AND st.stop_time_to_live))
    LOOP
        IF NOT q.queued THEN
            WITH step AS (
                SELECT d.id FROM postrider_internal.deliveries d
                 WHERE d.subscription_id = q.id AND d.available_at IS NOT NULL LIMIT most FOR UPDATE SKIP LOCKED
            )
            UPDATE postrider_internal.deliveries d SET pulled = false,
                   hold = (SELECT postrider_internal.hold_without_job(q.id))
              FROM step WHERE d.id = step.id AND d.id = ANY (ARRAY (SELECT u.id FROM step u));
            GET DIAGNOSTICS held = ROW_COUNT;
            changed := changed + held;
            CONTINUE;
        END IF;
        SELECT array_agg(ROW (old.id, CASE WHEN q.drops THEN 'dropped' ELSE 'dead_lettered' END, 'TimeToLiveExceeded',
                   CASE WHEN NOT q.drops THEN postrider_internal.new_uuid() END, NULL, NULL, NULL,
                   NULL)::postrider_internal.delivery_end) INTO ends
          FROM (SELECT d.id FROM postrider_internal.deliveries d
                 WHERE d.subscription_id = q.id AND d.available_at IS NOT NULL
                   AND d.time_to_live_since <= moment - q.time_to_live
                 ORDER BY d.time_to_live_since LIMIT most FOR UPDATE SKIP LOCKED) old;
        IF ends IS NOT NULL THEN
            changed := changed + postrider_internal.end_deliveries(ends);
        END IF;
    END LOOP;
    RETURN changed;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION postrider_internal.tend_available, postrider_internal.expire_locks, postrider_internal.renew_locks,
    postrider_internal.settle_locks, postrider_internal.end_locks, postrider_internal.take_locks,
    postrider_internal.receive_deliveries, postrider_internal.end_exhausted, postrider_internal.pull_settings_of;
DROP TYPE postrider_internal.received_delivery;
DROP VIEW postrider_internal.pull_settings;
