-- Makes up to @limit jobs of each state available whose times River has set: jobs that failed or were deferred before
-- their attempt began. River uses the clock of the process, which may be an hour off. The database's time of the fetch
-- bounds the wait of retryable jobs. An available job is never more than 5 s ahead.
WITH retryable AS MATERIALIZED (
    SELECT id FROM postrider_internal.river_job
     WHERE state = 'retryable' AND queue = ANY ('{deliveries,routes}') AND priority = 1
       AND (scheduled_at <= now() OR attempted_at < now() - interval '3 minutes')
     ORDER BY scheduled_at, id LIMIT @limit FOR UPDATE SKIP LOCKED
), available AS MATERIALIZED (
    SELECT id FROM postrider_internal.river_job
     WHERE state = 'available' AND queue = ANY ('{deliveries,routes}') AND priority = 1
       AND scheduled_at > now() + interval '10 seconds'
     ORDER BY scheduled_at, id LIMIT @limit FOR UPDATE SKIP LOCKED
), moved AS (
    UPDATE postrider_internal.river_job j SET state = 'available', scheduled_at = least(j.scheduled_at, now())
     WHERE j.id = ANY (ARRAY (SELECT id FROM retryable UNION ALL SELECT id FROM available)) RETURNING j.id
)
SELECT count(*) FROM moved
