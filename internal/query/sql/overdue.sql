-- Reports whether a delivery or batch has been due for half a minute. No node can fetch a job that another transaction
-- has locked, such as a user's in psql.
SELECT count(*) > 0
  FROM (SELECT FROM postrider_internal.river_job
         WHERE state = 'available' AND queue = 'deliveries' AND kind IN ('deliver', 'batch')
           AND scheduled_at < now() - interval '30 seconds'
         LIMIT 1 FOR KEY SHARE SKIP LOCKED) due
