-- Checks whether promote.sql or wake.sql would find a job. Planning a promotion takes a millisecond, which an idle node
-- would spend four times a second.
SELECT EXISTS (SELECT FROM postrider_internal.river_job
                WHERE state = 'scheduled' AND queue = 'deliveries' AND priority = 1 AND scheduled_at <= now())
    OR EXISTS (SELECT FROM postrider_internal.river_job
                WHERE state = 'retryable' AND queue = ANY ('{deliveries,routes}') AND priority = 1)
    OR EXISTS (SELECT FROM postrider_internal.river_job
                WHERE state = 'available' AND queue = ANY ('{deliveries,routes}') AND priority = 1
                  AND scheduled_at > now() + interval '10 seconds') AS due
