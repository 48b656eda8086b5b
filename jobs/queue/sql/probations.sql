-- The probations that hold deliveries, what started them, and whether a probe is due.
SELECT probation_key, coalesce(condition, 'other') AS condition,
       until <= now() AND NOT EXISTS (SELECT FROM postrider_internal.river_job j
                                       WHERE j.id = probe_job_id AND j.finalized_at IS NULL) AS probe_due
  FROM postrider_internal.probations WHERE since IS NOT NULL
