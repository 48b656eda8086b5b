-- Gives new jobs to up to $1 routes without a live job. One statement sees one snapshot, so such a row is
-- inconsistent. A row that another transaction changes meanwhile is left to the next pass.
WITH broken AS MATERIALIZED (
    SELECT r.id, r.job_id FROM postrider_internal.routes r
     WHERE r.created_at < now() - interval '60 seconds'
       AND NOT EXISTS (SELECT FROM postrider_internal.river_job j
                        WHERE j.id = r.job_id AND j.kind = 'route' AND j.finalized_at IS NULL)
     ORDER BY r.id LIMIT $1
), free AS (
    SELECT r.id FROM postrider_internal.routes r JOIN broken ON broken.id = r.id
     WHERE r.job_id IS NOT DISTINCT FROM broken.job_id ORDER BY r.id FOR UPDATE OF r SKIP LOCKED
), followed AS (
    UPDATE postrider_internal.routes r SET job_id = nextval('postrider_internal.river_job_id_seq')
      FROM free WHERE r.id = free.id RETURNING r.id, r.job_id
), inserted AS (
    INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT job_id, 'available', jsonb_build_object('route', id), 'route', 'routes', 1, 1000, now() FROM followed
)
SELECT 0::bigint, count(*) FROM followed
