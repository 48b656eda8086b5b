-- Gives new jobs to up to $1 pending handshakes without a live job. One statement sees one snapshot, so such a row is
-- inconsistent. A row that another transaction changes meanwhile is left to the next pass.
WITH broken AS MATERIALIZED (
    SELECT h.id, h.job_id FROM postrider_internal.handshakes h
     WHERE h.state = 'pending' AND h.created_at < now() - interval '60 seconds'
       AND NOT EXISTS (SELECT FROM postrider_internal.river_job j
                        WHERE j.id = h.job_id AND j.kind = 'handshake' AND j.finalized_at IS NULL)
     ORDER BY h.id LIMIT $1
), free AS (
    SELECT h.id FROM postrider_internal.handshakes h JOIN broken ON broken.id = h.id
     WHERE h.job_id IS NOT DISTINCT FROM broken.job_id ORDER BY h.id FOR UPDATE OF h SKIP LOCKED
), followed AS (
    UPDATE postrider_internal.handshakes h SET job_id = nextval('postrider_internal.river_job_id_seq')
      FROM free WHERE h.id = free.id RETURNING h.id, h.job_id
), inserted AS (
    INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT job_id, 'available', jsonb_build_object('h', id), 'handshake', 'handshakes', 3, 1000, now() FROM followed
)
SELECT 0::bigint, count(*) FROM followed
