-- The deliveries to create, in any case: a row for each row of "matches". It is a part of publish.sql and fanout.sql.
--
-- Job and delivery name each other, so both ids are drawn first, in the order of publishing: batches are cut in that
-- order. The day of the event finds its partition.
--
-- A delivery gets a hold instead of a job if its event subscription is on hold, has a rate limit (rate_limited), or has
-- too many jobs queued (admission). The rows of holds are locked until the commit: a release waits, and then finds
-- these deliveries. A row that another transaction has locked is skipped, because a user's transaction may stay open
-- for hours. Then the hold before the change applies, and refilling corrects it within a second.
--
-- "(since IS NOT NULL) IS TRUE" keeps the plan from reading the whole index of probations.
--
-- A delivery for which a worker of this node is reserved gets a job that is running here already, unless its endpoint
-- has failed lately: then its state has to be loaded. An event subscription that takes batches gets one batch cutter:
-- the job that cuts the next batch. The deliveries that a consumer pulls get no job.
held AS MATERIALIZED (
    SELECT subscription_id, hold FROM postrider_internal.event_subscription_states
     WHERE subscription_id = ANY (@destinations_subscription_id) AND hold IS NOT NULL FOR SHARE SKIP LOCKED
), seen AS MATERIALIZED (
    SELECT subscription_id, hold FROM postrider_internal.event_subscription_states
     WHERE subscription_id = ANY (@destinations_subscription_id) AND hold IS NOT NULL
), in_probation AS MATERIALIZED (
    SELECT probation_key FROM postrider_internal.probations
     WHERE probation_key = ANY (@destinations_probation_key::bytea[] || @destinations_other_probation_key::bytea[])
       AND (since IS NOT NULL) IS TRUE FOR SHARE SKIP LOCKED
), failing AS MATERIALIZED (
    SELECT probation_key, since IS NOT NULL AS held FROM postrider_internal.probations
     WHERE probation_key = ANY (@destinations_probation_key::bytea[] || @destinations_other_probation_key::bytea[])
), holding AS MATERIALIZED (
    SELECT probation_key FROM in_probation UNION ALL SELECT probation_key FROM failing WHERE held
), destinations AS MATERIALIZED (
    SELECT d.subscription_id, d.batching, d.limited, d.pulled,
           (d.probation_key IN (SELECT probation_key FROM failing)
            OR d.other_probation_key IN (SELECT probation_key FROM failing)) IS NOT TRUE AS healthy,
           coalesce(held.hold, seen.hold,
                    CASE WHEN d.probation_key IN (SELECT probation_key FROM holding)
                              OR d.other_probation_key IN (SELECT probation_key FROM holding)
                         THEN 'probation' END) AS hold
      FROM -- destinations.sql
      LEFT JOIN held ON held.subscription_id = d.subscription_id
      LEFT JOIN seen ON seen.subscription_id = d.subscription_id
), created AS MATERIALIZED (
    SELECT nextval('postrider_internal.deliveries_id_seq') AS id, m.*,
           CASE WHEN m.hold IS NULL AND NOT m.batching AND NOT m.pulled
                THEN nextval('postrider_internal.river_job_id_seq') END AS job_id,
           m.reserved AND m.healthy AND m.hold IS NULL AND NOT m.batching AS local
      FROM (SELECT m.*, d.batching, d.pulled, d.healthy,
                   coalesce(d.hold, CASE WHEN d.limited THEN 'rate_limited' WHEN NOT m.admitted THEN 'admission' END)
                   AS hold
              FROM matches m JOIN destinations d ON d.subscription_id = m.subscription_id ORDER BY m.position) m
), cutters AS (
    INSERT INTO postrider_internal.new_jobs
    SELECT j.*
      FROM (SELECT nextval('postrider_internal.river_job_id_seq') AS job_id, subscription_id
              FROM created WHERE batching AND hold IS NULL GROUP BY subscription_id) c,
           postrider_internal.attempt_job(c.job_id, now(), c.subscription_id) j
),
