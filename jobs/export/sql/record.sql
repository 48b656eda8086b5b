-- Records a try to write the export @id, created at @created: @location is the file ('' for none), @error why no file
-- was written; @final: another try would fail, too. @unfit and @unfit_errors are dead letters that could not be written
-- to the file. It returns how many dead letters were exported, were abandoned, and are pending.
--
-- The job row is the token: only the statement that deletes it marks the dead letters, and ends the export or inserts
-- its next job, which is due after @pause. A dead letter is abandoned after its export window. So each is tried at
-- least once, and once more at the end of the window. A notice reports the abandoned ones.
WITH gone AS (
    DELETE FROM postrider_internal.river_job
     WHERE id = @job AND kind = 'export'
       AND EXISTS (SELECT FROM postrider_internal.exports WHERE id = @id AND created_at = @created)
    RETURNING id
), current AS MATERIALIZED (
    SELECT x.id FROM postrider_internal.exports x JOIN gone ON gone.id = x.job_id WHERE x.id = @id FOR UPDATE OF x
), found AS MATERIALIZED (
    SELECT l.id, l.export_abandon_at, u.error,
           CASE WHEN u.id IS NOT NULL THEN 'abandoned'
                WHEN @location <> '' THEN 'exported'
                WHEN @final OR l.export_abandon_at <= now() THEN 'abandoned'
                ELSE 'pending' END AS state
      FROM current
      JOIN postrider_internal.dead_letters l ON l.export_id = current.id
      LEFT JOIN unnest(@unfit::uuid[], @unfit_errors::text[]) AS u(id, error) ON u.id = l.id
     ORDER BY l.id FOR UPDATE OF l
), marked AS (
    UPDATE postrider_internal.dead_letters l
       SET export_state = f.state, export_attempts = l.export_attempts + 1,
           export_id = CASE f.state WHEN 'pending' THEN l.export_id END,
           export_error = coalesce(f.error, nullif(@error, '')),
           exported_at = CASE f.state WHEN 'exported' THEN now() END,
           export_location = CASE f.state WHEN 'exported' THEN @location END
      FROM found f WHERE l.id = f.id
), again AS (
    UPDATE postrider_internal.exports x
       SET tries = x.tries + 1, job_id = nextval('postrider_internal.river_job_id_seq')
      FROM current WHERE x.id = current.id AND EXISTS (SELECT FROM found WHERE state = 'pending')
    RETURNING x.id, x.job_id
), job AS (
    INSERT INTO postrider_internal.new_jobs
    SELECT j.*
      FROM (SELECT again.*, least(now() + @pause::interval, (
                   SELECT min(export_abandon_at) FROM found WHERE state = 'pending')) AS due FROM again) a,
           postrider_internal.new_job(a.job_id, 'export', jsonb_build_object('x', a.id), a.due) j
), ended AS (
    DELETE FROM postrider_internal.exports x USING current
     WHERE x.id = current.id AND NOT EXISTS (SELECT FROM found WHERE state = 'pending')
), counted AS MATERIALIZED (
    SELECT count(*) FILTER (WHERE state = 'exported') AS exported,
           count(*) FILTER (WHERE state = 'abandoned') AS abandoned,
           count(*) FILTER (WHERE state = 'pending') AS pending,
           array_agg(id ORDER BY id) FILTER (WHERE state = 'abandoned') AS ids,
           coalesce(nullif(@error, ''), (array_agg(error ORDER BY id) FILTER (WHERE state = 'abandoned'))[1]) AS reason
      FROM found
)
SELECT exported, abandoned, pending,
       CASE WHEN abandoned > 0 THEN postrider_internal.note_exports_abandoned(ids, reason) END
  FROM counted
