-- Records a response that came after the ack timeout had ended its attempt, of a delivery or of a batch. All parts
-- need timed_out, the row of that attempt. An attempt that was not recorded (its node was considered dead, its job
-- was replaced) has no late response, and an attempt has only one.
--
-- A late success ends the delivery or the batch only by deleting the job row of the queued retry: the row is the
-- token of the next attempt. A job that runs, or that a fetch has locked, stays. A held delivery has no job; its own
-- row is then the token, which a release locks. Ids alone are not enough, see JobToken: the event must be the one
-- that was sent, and the batch that of the same time. Deliveries that left the batch meanwhile do not change.
WITH timed_out AS (
    SELECT FROM (SELECT late FROM postrider_internal.delivery_attempts
                  WHERE delivery_id = @delivery::bigint AND job_id = @job
                    AND day >= (now() AT TIME ZONE 'UTC')::date - 1
                  UNION ALL
                 SELECT late FROM postrider_internal.delivery_attempts
                  WHERE batch_id = @batch::bigint AND job_id = @job AND day >= (now() AT TIME ZONE 'UTC')::date - 1) a
    HAVING bool_and(NOT late)
), free AS (
    SELECT j.id FROM postrider_internal.river_job j
     WHERE @success::boolean AND j.state <> 'running' AND EXISTS (SELECT FROM timed_out)
       AND j.kind = CASE WHEN @batch::bigint IS NULL THEN 'deliver' ELSE 'batch' END
       AND j.id = (SELECT job_id FROM postrider_internal.deliveries
                    WHERE id = @delivery::bigint AND event_uuid = @event::uuid
                    UNION ALL
                   SELECT job_id FROM postrider_internal.batches
                    WHERE id = @batch::bigint AND created_at = @batch_created_at::timestamptz)
       FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM postrider_internal.river_job j USING free WHERE j.id = free.id RETURNING j.id
), held AS (
    SELECT id FROM postrider_internal.deliveries
     WHERE @success::boolean AND id = @delivery::bigint AND event_uuid = @event::uuid AND hold IS NOT NULL
       AND EXISTS (SELECT FROM timed_out) FOR UPDATE SKIP LOCKED
), held_batch AS (
    SELECT id FROM postrider_internal.batches
     WHERE @success::boolean AND id = @batch::bigint AND created_at = @batch_created_at::timestamptz AND hold
         IS NOT NULL
       AND EXISTS (SELECT FROM timed_out) FOR UPDATE SKIP LOCKED
), ended_batch AS (
    UPDATE postrider_internal.batches b
       SET state = 'delivered', finished_at = now(), job_id = NULL, hold = NULL, next_attempt_at = NULL,
           last_status = @status::int, last_outcome = @outcome::text
     WHERE b.id = @batch::bigint AND (b.job_id IN (SELECT id FROM gone) OR b.id IN (SELECT id FROM held_batch))
    RETURNING b.id
), members AS (
    SELECT id FROM postrider_internal.deliveries
     WHERE id = @delivery::bigint AND (job_id IN (SELECT id FROM gone) OR id IN (SELECT id FROM held))
     UNION ALL
    SELECT id FROM postrider_internal.deliveries WHERE batch_id = (SELECT id FROM ended_batch)
), finished AS (
    DELETE FROM postrider_internal.deliveries d
     WHERE d.id = ANY (ARRAY (SELECT id FROM members)) AND d.batch_id IS NOT DISTINCT FROM @batch::bigint
    RETURNING d.id, d.subscription_id, d.topic_id, d.event_uuid, d.event_day, d.batch_id, d.reruns,
              d.time_to_live_since, d.redelivered_from, d.operation_id, 'delivered' AS state, NULL::text AS reason,
              NULL::uuid AS dead_letter_id, d.attempts, @status::int AS last_status, @outcome::text AS last_outcome,
              d.first_attempt_at, d.last_attempt_at
), ended AS (
    SELECT id FROM finished UNION ALL SELECT id FROM ended_batch
), continuing AS (
    SELECT id FROM postrider_internal.deliveries WHERE id = @delivery::bigint
     UNION ALL
    SELECT id FROM postrider_internal.batches WHERE id = @batch::bigint AND state = 'pending'
), attempt AS (
    INSERT INTO postrider_internal.delivery_attempts (delivery_id, batch_id, day, subscription_id, job_id, number,
           reruns, started_at, duration_us, dns_us, connect_us, tls_us, first_byte_us, status, outcome, verdict,
           rule, late, node, response_headers, response_excerpt)
    SELECT @delivery::bigint, @batch::bigint, (now() AT TIME ZONE 'UTC')::date, @subscription, @job, @number, @reruns,
           @started_at, @duration_us, @dns_us, @connect_us, @tls_us, @first_byte_us, @status::int, @outcome::text,
           CASE WHEN EXISTS (SELECT FROM ended) THEN 'deliver' ELSE 'note' END,
           @why::text || CASE WHEN EXISTS (SELECT FROM ended) THEN '; the queued retry was canceled'
                              WHEN NOT @success::boolean THEN '; only noted'
                              WHEN EXISTS (SELECT
                                  FROM continuing) THEN '; only noted: no retry was waiting in the queue'
                              ELSE '; only noted: the ' || @what::text || ' had ended' END,
           true, @node, @response_headers, @response_excerpt
      FROM timed_out
), -- ends.sql
SELECT EXISTS (SELECT FROM ended)
