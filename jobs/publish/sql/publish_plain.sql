-- The plain variant of T1, see publish.sql. It stores nothing if a destination is on hold, or its endpoint has failed
-- lately.
WITH fresh AS (
    SELECT version FROM postrider_internal.catalog WHERE version = @version
       AND NOT EXISTS (SELECT FROM postrider_internal.event_subscription_states
                        WHERE subscription_id = ANY (@destinations_subscription_id) AND hold IS NOT NULL)
       AND NOT EXISTS (SELECT FROM postrider_internal.probations
                        WHERE probation_key = ANY (@destinations_probation_key::bytea[]
                                                   || @destinations_other_probation_key::bytea[]))
), -- events.sql
-- matches.sql
created AS MATERIALIZED (
    SELECT nextval('postrider_internal.deliveries_id_seq') AS id, m.*, false AS pulled,
           CASE WHEN NOT admitted THEN 'admission' END AS hold,
           CASE WHEN admitted THEN nextval('postrider_internal.river_job_id_seq') END AS job_id,
           reserved AND admitted AS local
      FROM matches m ORDER BY position
), -- deliveries.sql
-- stored.sql
