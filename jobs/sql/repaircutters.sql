-- Inserts a batch cutter for up to @limit event subscriptions that have open deliveries and no batch cutter. If
-- batches are off, it cuts batches of one.
WITH RECURSIVE jump(subscription_id) AS (
    (SELECT subscription_id FROM postrider_internal.deliveries WHERE open ORDER BY subscription_id LIMIT 1)
    UNION ALL
    SELECT (SELECT d.subscription_id FROM postrider_internal.deliveries d
             WHERE d.open AND d.subscription_id > jump.subscription_id ORDER BY d.subscription_id LIMIT 1)
      FROM jump WHERE jump.subscription_id IS NOT NULL
), waiting AS MATERIALIZED (
    SELECT j.subscription_id FROM jump j
     WHERE j.subscription_id IS NOT NULL
       AND (SELECT d.time_to_live_since FROM postrider_internal.deliveries d
             WHERE d.subscription_id = j.subscription_id AND d.open ORDER BY d.id LIMIT 1)
           < now() - interval '60 seconds'
       AND (SELECT true FROM postrider_internal.event_subscriptions s
             WHERE s.id = j.subscription_id AND s.deleted_at IS NOT NULL AND s.drained_at IS NULL) IS NULL
), cutters AS MATERIALIZED (
    SELECT (args ->> 's')::bigint AS subscription_id FROM postrider_internal.river_job
     WHERE EXISTS (SELECT FROM waiting)
       AND queue = 'deliveries' AND kind = 'batch' AND finalized_at IS NULL AND args -> 'b' IS NULL
), inserted AS (
    INSERT INTO postrider_internal.new_jobs
    SELECT j.*
      FROM (SELECT nextval('postrider_internal.river_job_id_seq') AS job_id, subscription_id FROM waiting
             WHERE subscription_id NOT IN (SELECT subscription_id FROM cutters) LIMIT @limit) w,
           postrider_internal.attempt_job(w.job_id, now(), w.subscription_id) j
    RETURNING id
)
SELECT 0::bigint, count(*) FROM inserted
