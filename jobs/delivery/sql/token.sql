-- Deletes the jobs of "input", except those that their batch keeps. Without the list of ids, the planner may read all
-- jobs. It is a part of record.sql, record_ends.sql and record_whole.sql.
    DELETE FROM postrider_internal.river_job j USING input i
     WHERE j.id = ANY (@results_job_id) AND j.id = i.job_id AND j.created_at = i.job_created_at AND i.verdict <> 'leave'
    RETURNING j.id
