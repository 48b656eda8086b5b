--
WITH fresh AS (
    SELECT version FROM postrider_internal.catalog WHERE version = @version
),
stored AS (
    INSERT INTO postrider_internal.events (id, day, topic_id, published_at, event_time, catalog_version, matched,
           event_id, event_type, subject, source, data_version, schema, body, traceparent, tracestate)
    SELECT e.id, (now() AT TIME ZONE 'UTC')::date, e.topic_id, now(), e.event_time, fresh.version, e.matched,
           e.event_id, e.event_type, e.subject, e.source, e.data_version, e.schema, e.body,
           nullif(e.traceparent, ''), nullif(e.tracestate, '')
      FROM fresh, unnest(
           @events_id::uuid[], @events_topic_id::bigint[], @events_event_time::timestamptz[], @events_matched::int[],
           @events_event_id::text[], @events_event_type::text[], @events_subject::text[], @events_source::text[],
           @events_data_version::text[], @events_schema::text[], @events_traceparent::text[],
           @events_tracestate::text[], @events_body::bytea[])
           AS e(id, topic_id, event_time, matched, event_id, event_type, subject, source, data_version, schema,
                traceparent, tracestate, body)
), counted AS (
    INSERT INTO postrider_internal.rollup_deltas (entries)
    SELECT array_agg(postrider_internal.count_entry(
               topic_id, subscription_id, CASE subscription_id WHEN 0 THEN 'published' ELSE 'matched' END, count))
      FROM fresh CROSS JOIN
           unnest(@destinations_topic_id::bigint[], @destinations_subscription_id::bigint[],
                  @destinations_count::bigint[], @destinations_probation_key::bytea[],
                  @destinations_other_probation_key::bytea[], @destinations_batching::bool[],
                  @destinations_limited::bool[], @destinations_pulled::bool[])
           AS d(topic_id, subscription_id, count, probation_key, other_probation_key, batching, limited, pulled)
    HAVING count(*) > 0
),
matches AS (
    SELECT m.*, (now() AT TIME ZONE 'UTC')::date AS event_day, now() AS time_to_live_since
      FROM fresh CROSS JOIN unnest(
           @deliveries_event_uuid::uuid[], @deliveries_topic_id::bigint[], @deliveries_subscription_id::bigint[],
           @deliveries_admitted::bool[], @deliveries_event_bytes::int[], @deliveries_reserved::bool[])
           WITH ORDINALITY AS m(event_uuid, topic_id, subscription_id, admitted, event_bytes, reserved, position)
),
--
--
--
--
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
      FROM
           unnest(@destinations_topic_id::bigint[], @destinations_subscription_id::bigint[],
                  @destinations_count::bigint[], @destinations_probation_key::bytea[],
                  @destinations_other_probation_key::bytea[], @destinations_batching::bool[],
                  @destinations_limited::bool[], @destinations_pulled::bool[])
           AS d(topic_id, subscription_id, count, probation_key, other_probation_key, batching, limited, pulled)
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
SELECT c.version, EXISTS (SELECT FROM fresh), now(), clock_timestamp(), l.ids, l.jobs, l.positions
  FROM postrider_internal.catalog c CROSS JOIN (
       SELECT coalesce(array_agg(id), '{}') AS ids, coalesce(array_agg(job_id), '{}') AS jobs,
              coalesce(array_agg(position), '{}') AS positions
         FROM created WHERE local) l
