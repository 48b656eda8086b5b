-- Inserts new jobs for up to $1 rows of @table without a live job. Row and job change together, and one statement sees
-- one snapshot: such a row is inconsistent. A row that another transaction changes is left to the next pass.
WITH broken AS MATERIALIZED (
    SELECT o.id, o.job_id FROM postrider_internal.@table o
     WHERE @condition AND o.created_at < now() - interval '60 seconds'
       AND NOT EXISTS (SELECT FROM postrider_internal.river_job j
                        WHERE j.id = o.job_id AND j.kind = '@kind' AND j.finalized_at IS NULL)
     ORDER BY o.id LIMIT $1
), free AS (
    SELECT o.id FROM postrider_internal.@table o JOIN broken ON broken.id = o.id
     WHERE o.job_id IS NOT DISTINCT FROM broken.job_id ORDER BY o.id FOR UPDATE OF o SKIP LOCKED
), followed AS (
    UPDATE postrider_internal.@table o SET job_id = nextval('postrider_internal.river_job_id_seq')
      FROM free WHERE o.id = free.id RETURNING o.id, o.job_id
), inserted AS (
    INSERT INTO postrider_internal.new_jobs
    SELECT j.*
      FROM followed f, postrider_internal.new_job(
           f.job_id, '@kind', jsonb_build_object('@argument', f.id), now(), priority => @priority) j
)
SELECT 0::bigint, count(*) FROM followed
