-- Creates batches of deliveries, and returns whether the first one was created. @numbers has the batch of each of
-- @deliveries, @bytes those of each batch. The job of the first batch is the cutter's, @job; the other batches get new
-- jobs. Members have the order in which their events were accepted, which is that of their ids. The deliveries were
-- not locked when they were read: those that have a job or a batch by now are left out. @permits is 1 if each batch
-- has a permit of a rate limit, else 0; if @per_event, a batch has a permit for each member.
WITH cuts AS MATERIALIZED (
    SELECT c.n, c.bytes, nextval('postrider_internal.batches_id_seq') AS id,
           CASE c.n WHEN 1 THEN @job ELSE nextval('postrider_internal.river_job_id_seq') END AS job_id
      FROM unnest(@bytes::bigint[]) WITH ORDINALITY AS c(bytes, n)
), bound AS (
    UPDATE postrider_internal.deliveries d
       SET batch_id = cuts.id, last_hold = coalesce(d.hold, d.last_hold), hold = NULL
      FROM unnest(@deliveries::bigint[], @numbers::int[]) AS c(id, n) JOIN cuts ON cuts.n = c.n
     WHERE d.id = c.id AND d.id = ANY (@deliveries::bigint[]) AND d.job_id IS NULL AND d.batch_id IS NULL
       AND d.attempts = 0
    RETURNING d.id, d.next_attempt_at, d.last_hold, d.batch_id
), batches AS (
    INSERT INTO postrider_internal.batches (id, subscription_id, job_id, bytes, members, delivery_ids, next_attempt_at,
           last_hold)
    SELECT cuts.id, @subscription, cuts.job_id, cuts.bytes, m.members, m.delivery_ids, m.due, m.last_hold
      FROM cuts
      JOIN (SELECT batch_id, count(*) AS members, array_agg(id ORDER BY id) AS delivery_ids,
                   min(next_attempt_at) AS due, (array_agg(last_hold ORDER BY id))[1] AS last_hold
              FROM bound GROUP BY 1) m ON m.batch_id = cuts.id
    RETURNING id, job_id, members
), jobs AS (
    INSERT INTO postrider_internal.new_jobs
    SELECT j.*
      FROM batches b, postrider_internal.attempt_job(
           b.job_id, now(), @subscription, batch => b.id, number => 1,
           permits => @permits::int * CASE WHEN @per_event::boolean THEN b.members ELSE 1 END) j
     WHERE b.job_id <> @job
), first AS (
    UPDATE postrider_internal.river_job j SET args = j.args || jsonb_build_object('b', batches.id, 'n', 1)
      FROM batches WHERE batches.job_id = @job AND j.id = @job
    RETURNING j.id
)
SELECT EXISTS (SELECT FROM first)
