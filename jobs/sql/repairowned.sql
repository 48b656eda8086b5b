-- Inserts new jobs for up to @limit routes, exports, pending handshakes and running operations that have no live job.
-- Row and job change together, and one statement sees one snapshot: such a row is inconsistent. A row that another
-- transaction changes is left to the next pass.
WITH broken AS MATERIALIZED (
    SELECT o.kind, o.number, o.uuid, o.job_id, nextval('postrider_internal.river_job_id_seq') AS next_job
      FROM (SELECT 'route' AS kind, id AS number, NULL::uuid AS uuid, job_id, created_at FROM postrider_internal.routes
             UNION ALL
            SELECT 'export', id, NULL, job_id, created_at FROM postrider_internal.exports
             UNION ALL
            SELECT 'handshake', id, NULL, job_id, created_at FROM postrider_internal.handshakes WHERE state = 'pending'
             UNION ALL
            SELECT 'operation', NULL, id, job_id, created_at FROM postrider_internal.operations
             WHERE state = 'running') o
     WHERE o.created_at < now() - interval '60 seconds'
       AND NOT EXISTS (SELECT FROM postrider_internal.river_job j
                        WHERE j.id = o.job_id AND j.kind = o.kind AND j.finalized_at IS NULL)
     LIMIT @limit
), routes AS (
    UPDATE postrider_internal.routes o SET job_id = b.next_job
      FROM (SELECT l.id, b.kind, b.next_job FROM broken b JOIN postrider_internal.routes l ON l.id = b.number
             WHERE b.kind = 'route' AND l.job_id IS NOT DISTINCT FROM b.job_id FOR UPDATE OF l SKIP LOCKED) b
     WHERE o.id = b.id
    RETURNING b.kind, o.job_id, jsonb_build_object('route', o.id) AS args
), exports AS (
    UPDATE postrider_internal.exports o SET job_id = b.next_job
      FROM (SELECT l.id, b.kind, b.next_job FROM broken b JOIN postrider_internal.exports l ON l.id = b.number
             WHERE b.kind = 'export' AND l.job_id IS NOT DISTINCT FROM b.job_id FOR UPDATE OF l SKIP LOCKED) b
     WHERE o.id = b.id
    RETURNING b.kind, o.job_id, jsonb_build_object('x', o.id)
), handshakes AS (
    UPDATE postrider_internal.handshakes o SET job_id = b.next_job
      FROM (SELECT l.id, b.kind, b.next_job FROM broken b JOIN postrider_internal.handshakes l ON l.id = b.number
             WHERE b.kind = 'handshake' AND l.job_id IS NOT DISTINCT FROM b.job_id FOR UPDATE OF l SKIP LOCKED) b
     WHERE o.id = b.id
    RETURNING b.kind, o.job_id, jsonb_build_object('h', o.id)
), operations AS (
    UPDATE postrider_internal.operations o SET job_id = b.next_job
      FROM (SELECT l.id, b.kind, b.next_job FROM broken b JOIN postrider_internal.operations l ON l.id = b.uuid
             WHERE b.kind = 'operation' AND l.job_id IS NOT DISTINCT FROM b.job_id FOR UPDATE OF l SKIP LOCKED) b
     WHERE o.id = b.id
    RETURNING b.kind, o.job_id, jsonb_build_object('o', o.id)
), inserted AS (
    INSERT INTO postrider_internal.new_jobs
    SELECT j.*
      FROM (SELECT * FROM routes UNION ALL SELECT * FROM exports UNION ALL SELECT * FROM handshakes
             UNION ALL SELECT * FROM operations) f,
           postrider_internal.new_job(
               f.job_id, f.kind, f.args, now(), priority => CASE f.kind WHEN 'handshake' THEN 3 ELSE 1 END) j
    RETURNING id
)
SELECT 0::bigint, count(*) FROM inserted
