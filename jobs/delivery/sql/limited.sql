-- Gives jobs to held batches and then to held deliveries without a batch of an event subscription with the rate
-- limit @key, the oldest first, see release.sql. Each request takes a permit: the next time of the limit's row, with
-- @step to the one after it, and at most @burst are due at once. If the step has changed, the wait for the next time
-- changes with it, once. Permits up to @ahead_of_time from now are taken. One request takes at most @per_request: if
-- the next time is further away than that and a burst, the database's clock was set back. Permits and jobs are
-- committed together, so that a crash loses none. While another node takes permits, or one of @probations lasts,
-- this one takes none. Only deliveries of at least the age @age are released, and batches that have one. If @last,
-- these are last attempts. Deliveries that reach the age @max_age before @ahead_of_time has passed are left: they
-- expire, and would use the permits of the others.
--
-- If @per_event, a batch takes a permit for each member: the last one may take more than there are, and the next one
-- waits longer. If @batching, deliveries that were never attempted stay on hold for batch cutters. A cutter corrects
-- the permits that it has when it has cut its batch. No join and no list finds the deliveries: a release reads as many
-- as it releases, with and without statistics.
--
-- It returns how many deliveries it released, how many cutters it inserted, and how long the next time is away in
-- seconds: NULL while another node takes permits.
WITH allowed AS MATERIALIZED (
    SELECT 1 WHERE NOT EXISTS (
           SELECT FROM postrider_internal.event_subscription_states
            WHERE subscription_id = @subscription AND hold IS NOT NULL)
       AND NOT EXISTS (SELECT FROM postrider_internal.probations
                        WHERE probation_key = ANY (@probations) AND since IS NOT NULL)
), rate AS MATERIALIZED (
    SELECT @step::interval AS step, r.next_at AS stored, c.next_at,
           greatest(c.next_at, clock_timestamp() - (@burst::int - 1) * @step::interval) AS first
      FROM postrider_internal.delivery_rates r
     CROSS JOIN LATERAL (
           SELECT least(CASE WHEN r.next_at > now() AND r.step <> @step::interval
                             THEN now() + (r.next_at - now()) * (extract(epoch FROM @step::interval)
                                 / extract(epoch FROM r.step))::float8
                             ELSE r.next_at END,
                        now() + @ahead_of_time::interval + (@burst::int + @per_request::int) * @step::interval)
                  AS next_at) c
     WHERE r.key = @key AND EXISTS (SELECT FROM allowed) FOR UPDATE OF r SKIP LOCKED
), permits AS MATERIALIZED (
    SELECT least(ceil(extract(epoch FROM now() + @ahead_of_time::interval - first) / extract(epoch FROM step)),
                 @limit)::bigint AS n
      FROM rate WHERE first < now() + @ahead_of_time::interval
), held_batches AS MATERIALIZED (
    SELECT id, members, attempts, held_reruns, hold FROM postrider_internal.batches b
     WHERE EXISTS (SELECT FROM permits) AND subscription_id = @subscription AND hold IS NOT NULL
       AND next_attempt_at <= now()
       AND EXISTS (SELECT FROM postrider_internal.deliveries d
                    WHERE d.batch_id = b.id AND d.time_to_live_since <= now() - @age::interval
                      AND d.time_to_live_since > now() + @ahead_of_time::interval - @max_age::interval)
     ORDER BY id LIMIT (SELECT n FROM permits) FOR UPDATE SKIP LOCKED
), batch_permits AS MATERIALIZED (
    SELECT *, sum(CASE WHEN @per_event::boolean THEN members ELSE 1 END) OVER (ORDER BY id) AS until FROM held_batches
), chosen_batches AS MATERIALIZED (
    SELECT *, until - CASE WHEN @per_event::boolean THEN members ELSE 1 END AS position
      FROM batch_permits
     WHERE until - CASE WHEN @per_event::boolean THEN members ELSE 1 END < (SELECT n FROM permits)
), oldest AS MATERIALIZED (
    SELECT id, attempts, time_to_live_since FROM postrider_internal.deliveries
     WHERE @batching::boolean AND EXISTS (SELECT FROM permits) AND subscription_id = @subscription AND hold IS NOT NULL
       AND next_attempt_at <= now() AND time_to_live_since <= now() - @age::interval
       AND time_to_live_since > now() + @ahead_of_time::interval - @max_age::interval
     ORDER BY time_to_live_since, id
     LIMIT (SELECT CASE WHEN @per_event::boolean THEN n + @batch_size ELSE n * @batch_size END FROM permits)
), single AS MATERIALIZED (
    SELECT id, attempts, held_reruns, hold, time_to_live_since FROM postrider_internal.deliveries
     WHERE EXISTS (SELECT FROM permits) AND subscription_id = @subscription AND hold IS NOT NULL
       AND next_attempt_at <= now() AND time_to_live_since <= now() - @age::interval
       AND time_to_live_since > now() + @ahead_of_time::interval - @max_age::interval
       AND (NOT @batching::boolean OR attempts > 0 AND (time_to_live_since, id) <= (
           SELECT o.time_to_live_since, o.id FROM oldest o ORDER BY o.time_to_live_since DESC, o.id DESC LIMIT 1))
     ORDER BY time_to_live_since, id
     LIMIT greatest((SELECT n FROM permits) - (SELECT coalesce(max(until), 0) FROM chosen_batches), 0)
     FOR UPDATE SKIP LOCKED
), positions AS MATERIALIZED (
    SELECT 'b' AS what, members, id, attempts, held_reruns, hold, position FROM chosen_batches
     UNION ALL
    SELECT 'd', 1, id, attempts, held_reruns, hold,
           (SELECT coalesce(max(until), 0) FROM chosen_batches)
           + row_number() OVER (ORDER BY time_to_live_since, id) - 1
      FROM single
), taken AS MATERIALIZED (
    SELECT coalesce(max(until), 0) + (SELECT count(*) FROM single) AS n FROM chosen_batches
), uncut AS MATERIALIZED (
    SELECT count(*) AS n, CASE WHEN @per_event::boolean THEN @batch_size::int ELSE 1 END AS each
      FROM oldest WHERE attempts = 0
), cutters AS MATERIALIZED (
    SELECT nextval('postrider_internal.river_job_id_seq') AS job_id, (SELECT n FROM taken) + g * u.each AS position,
           CASE WHEN @per_event::boolean THEN least(u.each, u.n - g * @batch_size::int) ELSE 1 END AS permits
      FROM uncut u, generate_series(0, ceil(u.n::float8 / @batch_size::int)::int - 1) g
     WHERE (SELECT n FROM taken) + g * u.each < (SELECT n FROM permits)
), timed AS MATERIALIZED (
    SELECT what, members, id, @subscription::bigint AS subscription_id, attempts, held_reruns, hold,
           greatest(now(), (SELECT first + position * step FROM rate)) AS due,
           nextval('postrider_internal.river_job_id_seq') AS job_id,
           CASE WHEN @per_event::boolean THEN members ELSE 1 END AS permits
      FROM positions
), wave AS MATERIALIZED (
    SELECT *, @last::boolean AS exempt FROM timed
), cutter_jobs AS (
    INSERT INTO postrider_internal.new_jobs
    SELECT j.*
      FROM (SELECT c.*, greatest(now(), r.first + c.position * r.step) AS due FROM cutters c, rate r) c,
           postrider_internal.attempt_job(
           c.job_id, c.due, @subscription, permits => c.permits::int, exempt => @last::boolean) j
), permits_taken AS MATERIALIZED (
    SELECT (SELECT n FROM taken) + (SELECT coalesce(sum(permits), 0) FROM cutters) AS n
), moved AS (
    UPDATE postrider_internal.delivery_rates r
       SET next_at = CASE WHEN t.n > 0 THEN rate.first + t.n * rate.step ELSE rate.next_at END, step = rate.step
      FROM rate, permits_taken t
     WHERE r.key = @key AND (t.n > 0 OR rate.next_at <> rate.stored)
    RETURNING t.n, r.next_at
), -- start.sql
SELECT (SELECT coalesce(sum(members), 0) FROM wave) AS released, (SELECT count(*) FROM cutters) AS cutters,
       (SELECT extract(epoch FROM coalesce((SELECT max(next_at) FROM moved WHERE n > 0), first)
                   - clock_timestamp())::float8
          FROM rate) AS wait
