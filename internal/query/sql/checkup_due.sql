-- Returns the number of due jobs, up to 10,000, how long the oldest is due, and whether an attempt is running.
SELECT count(*) AS waiting, clock_timestamp() - min(scheduled_at) AS oldest_due,
       EXISTS (SELECT FROM postrider_internal.river_job WHERE state = 'running' AND queue = 'deliveries') AS running
  FROM (SELECT scheduled_at FROM postrider_internal.river_job
         WHERE state = 'available' AND scheduled_at < now() LIMIT 10000) due
