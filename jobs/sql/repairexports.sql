-- Gives new jobs to up to $1 exports without a live job. One statement sees one snapshot, so such a row is
-- inconsistent. A row that another transaction changes meanwhile is left to the next pass.
WITH broken AS MATERIALIZED (
    SELECT x.id, x.job_id FROM postrider_internal.exports x
     WHERE x.created_at < now() - interval '60 seconds'
       AND NOT EXISTS (SELECT FROM postrider_internal.river_job j
                        WHERE j.id = x.job_id AND j.kind = 'export' AND j.finalized_at IS NULL)
     ORDER BY x.id LIMIT $1
), free AS (
    SELECT x.id FROM postrider_internal.exports x JOIN broken ON broken.id = x.id
     WHERE x.job_id IS NOT DISTINCT FROM broken.job_id ORDER BY x.id FOR UPDATE OF x SKIP LOCKED
), followed AS (
    UPDATE postrider_internal.exports x SET job_id = nextval('postrider_internal.river_job_id_seq')
      FROM free WHERE x.id = free.id RETURNING x.id, x.job_id
), inserted AS (
    INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT job_id, 'available', jsonb_build_object('x', id), 'export', 'exports', 1, 1000, now() FROM followed
)
SELECT 0::bigint, count(*) FROM followed
