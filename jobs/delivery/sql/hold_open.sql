-- Puts up to @step open deliveries of an event subscription on hold, if the cutter's job still exists, and returns
-- how many.
WITH token AS MATERIALIZED (
    SELECT id FROM postrider_internal.river_job WHERE id = @job AND created_at = @job_created_at FOR UPDATE
), step AS MATERIALIZED (
    SELECT d.id FROM postrider_internal.deliveries d
     WHERE EXISTS (SELECT FROM token) AND d.subscription_id = @subscription AND d.open
     ORDER BY d.id LIMIT @step FOR UPDATE
), held AS (
    UPDATE postrider_internal.deliveries d SET hold = @hold FROM step WHERE d.id = step.id
)
SELECT count(*) FROM step
