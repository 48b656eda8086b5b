-- Creates the deliveries "created" with their jobs. It is a part of publish.sql, publish_plain.sql and fanout.sql.
jobs AS (
    INSERT INTO postrider_internal.new_jobs
    SELECT j.*
      FROM created c, postrider_internal.attempt_job(
           c.job_id, now(), c.subscription_id, delivery => c.id, number => 1,
           node => CASE WHEN c.local THEN @node::text END) j
     WHERE c.job_id IS NOT NULL
), deliveries AS (
    INSERT INTO postrider_internal.deliveries (id, subscription_id, topic_id, event_uuid, event_day, event_bytes,
           job_id, hold, pulled, time_to_live_since, next_attempt_at)
    SELECT id, subscription_id, topic_id, event_uuid, event_day, event_bytes, job_id, hold, pulled, time_to_live_since,
           now()
      FROM created
)
