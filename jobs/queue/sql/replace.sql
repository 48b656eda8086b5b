-- Replaces @jobs, which are locked, by new rows that have @reruns more and are due in @seconds. The row that names the
-- job (of a delivery, a batch, a route, …) changes in the same statement, so that an old job records nothing. A batch
-- keeps its members. No row names a batch cutter's job. It returns how many jobs were replaced, and the queues of
-- those that are no deliveries' jobs.
--
-- The locks need a statement before this one: it must see the batch that a batch cutter committed before its row could
-- be locked.
WITH input AS (
    SELECT * FROM unnest(@jobs::bigint[], @reruns::int[], @seconds::float8[]) AS a(id, reruns, seconds)
), lost AS (
    DELETE FROM postrider_internal.river_job j WHERE j.id = ANY (@jobs::bigint[])
    RETURNING j.id, j.kind, j.args, j.queue, j.priority
), again AS MATERIALIZED (
    SELECT id AS old_id, nextval('postrider_internal.river_job_id_seq') AS id, kind, queue, priority,
           (args ->> 'd')::bigint AS delivery_id, (args ->> 'b')::bigint AS batch_id, reruns,
           args || jsonb_build_object('r', coalesce((args ->> 'r')::int, 0) + reruns) AS args,
           now() + seconds * interval '1 second' AS due
      FROM lost JOIN input USING (id)
), deliveries AS (
    UPDATE postrider_internal.deliveries d SET job_id = again.id, reruns = d.reruns + again.reruns
      FROM again WHERE again.kind = 'deliver' AND d.id = again.delivery_id AND d.job_id = again.old_id
    RETURNING again.id
), batches AS (
    UPDATE postrider_internal.batches b SET job_id = again.id, reruns = b.reruns + again.reruns
      FROM again WHERE again.kind = 'batch' AND b.id = again.batch_id AND b.job_id = again.old_id
    RETURNING again.id
), routes AS (
    UPDATE postrider_internal.routes r SET job_id = again.id
      FROM again WHERE again.kind = 'route' AND r.job_id = again.old_id
    RETURNING again.id
), handshakes AS (
    UPDATE postrider_internal.handshakes h SET job_id = again.id
      FROM again WHERE again.kind = 'handshake' AND h.job_id = again.old_id AND h.state = 'pending'
    RETURNING again.id
), exports AS (
    UPDATE postrider_internal.exports x SET job_id = again.id
      FROM again WHERE again.kind = 'export' AND x.job_id = again.old_id
    RETURNING again.id
), operations AS (
    UPDATE postrider_internal.operations o SET job_id = again.id
      FROM again WHERE again.kind = 'operation' AND o.job_id = again.old_id AND o.state = 'running'
    RETURNING again.id
), followed AS (
    SELECT id FROM deliveries UNION ALL SELECT id FROM batches UNION ALL SELECT id FROM routes
     UNION ALL SELECT id FROM handshakes UNION ALL SELECT id FROM exports UNION ALL SELECT id FROM operations
     UNION ALL SELECT id FROM again WHERE kind = 'batch' AND batch_id IS NULL
), probes AS (
    UPDATE postrider_internal.probations p SET probe_job_id = again.id
      FROM again JOIN followed ON followed.id = again.id WHERE p.probe_job_id = again.old_id
), inserted AS (
    INSERT INTO postrider_internal.new_jobs
    SELECT j.*
      FROM again a JOIN followed ON followed.id = a.id,
           postrider_internal.new_job(a.id, a.kind, a.args, a.due, priority => a.priority) j
    RETURNING queue
)
SELECT count(*), coalesce(array_agg(DISTINCT queue) FILTER (WHERE queue <> 'deliveries'), '{}') FROM inserted
