-- Gives jobs to held batches and then to held deliveries without a batch of an event subscription, the oldest first.
-- The job replaces the hold in one row version: after a crash, or with two nodes at once, each delivery has exactly
-- one of the two.
--
-- @limit counts deliveries; a batch counts as its members, and is released if any is left of the limit. @refill stops
-- if the event subscription is on hold by now, because the sample of the traffic may be older. Otherwise it releases
-- deliveries of at least the age @age, even if their event subscription is on hold. @also_later releases deliveries
-- that wait for a later retry, with a job for that time. If @batching, deliveries that were never attempted stay on
-- hold for the batch cutter that this inserts: releasing them would write each row once more (27 of 100 µs for each
-- event). @exempt, if no rate limit applies, because nothing will be sent or it is a last attempt;
-- limited.sql releases those that one applies to.
WITH allowed AS MATERIALIZED (
    SELECT 1 WHERE NOT @refill::boolean OR NOT EXISTS (
           SELECT FROM postrider_internal.event_subscription_states
            WHERE subscription_id = @subscription AND hold IS NOT NULL)
), held_batches AS MATERIALIZED (
    SELECT id, members, attempts, held_reruns, hold, next_attempt_at FROM postrider_internal.batches b
     WHERE EXISTS (SELECT FROM allowed) AND subscription_id = @subscription AND hold IS NOT NULL
       AND (@also_later::boolean OR next_attempt_at <= now())
       AND (@refill::boolean OR EXISTS (SELECT FROM postrider_internal.deliveries d
                                         WHERE d.batch_id = b.id AND d.time_to_live_since <= now() - @age::interval))
     ORDER BY id LIMIT @limit FOR UPDATE SKIP LOCKED
), chosen_batches AS MATERIALIZED (
    SELECT * FROM (SELECT *, sum(members) OVER (ORDER BY id) - members AS before FROM held_batches) b
    WHERE before < @limit
), left_over AS MATERIALIZED (
    SELECT greatest(@limit - coalesce(sum(members), 0), 0) AS n FROM chosen_batches
), oldest AS MATERIALIZED (
    SELECT id, attempts FROM postrider_internal.deliveries
     WHERE @batching::boolean AND EXISTS (SELECT FROM allowed) AND subscription_id = @subscription AND hold IS NOT NULL
       AND (attempts > 0 OR next_attempt_at <= now())
     ORDER BY time_to_live_since, id LIMIT least((SELECT n FROM left_over), @ahead)
), cutter AS (
    INSERT INTO postrider_internal.new_jobs
    SELECT j.*
      FROM nextval('postrider_internal.river_job_id_seq') AS job_id,
           postrider_internal.attempt_job(job_id, now(), @subscription) j
     WHERE EXISTS (SELECT FROM oldest WHERE attempts = 0)
), chosen_deliveries AS (
    SELECT id, attempts, held_reruns, hold, next_attempt_at FROM postrider_internal.deliveries
     WHERE EXISTS (SELECT FROM allowed) AND subscription_id = @subscription AND hold IS NOT NULL
       AND (@refill::boolean OR time_to_live_since <= now() - @age::interval)
       AND (@also_later::boolean OR next_attempt_at <= now())
       AND (NOT @batching::boolean OR id = ANY (ARRAY (SELECT id FROM oldest WHERE attempts > 0)))
     ORDER BY time_to_live_since, id LIMIT (SELECT n FROM left_over) FOR UPDATE SKIP LOCKED
), wave AS MATERIALIZED (
    SELECT 'b' AS what, members, id, @subscription::bigint AS subscription_id, attempts, held_reruns, hold,
           greatest(now(), next_attempt_at) AS due, nextval('postrider_internal.river_job_id_seq') AS job_id,
           0 AS permits, @exempt::boolean AS exempt
      FROM chosen_batches
     UNION ALL
    SELECT 'd', 1, id, @subscription::bigint, attempts, held_reruns, hold, greatest(now(), next_attempt_at),
           nextval('postrider_internal.river_job_id_seq'), 0, @exempt::boolean
      FROM chosen_deliveries
), -- start.sql
SELECT (SELECT coalesce(sum(members), 0) FROM wave) AS released,
       (SELECT count(*) FROM oldest WHERE attempts = 0) AS for_cutter
