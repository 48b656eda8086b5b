-- T1: stores events, their deliveries, and one job per delivery, if the catalog still has the version ($1) that the
-- filters were taken from. It returns the version that it found, its time, that of the database's clock, and the
-- deliveries whose jobs this node's workers have already. $6 and $7 are a topic or event subscription's topic, and
-- its count; $8 to $20 the columns of the events; $21 to $26 those of the deliveries.
WITH fresh AS (
    SELECT version FROM postrider_internal.catalogue WHERE version = $1
), stored AS (
    INSERT INTO postrider_internal.events (id, day, topic_id, published_at, event_time, catalogue_version, matched,
           event_id, event_type, subject, source, data_version, schema, body, traceparent, tracestate)
    SELECT e.id, (now() AT TIME ZONE 'UTC')::date, e.topic_id, now(), e.event_time, fresh.version, e.matched,
           e.event_id, e.event_type, e.subject, e.source, e.data_version, e.schema, e.body,
           nullif(e.traceparent, ''), nullif(e.tracestate, '')
      FROM fresh, unnest($8::uuid[], $9::bigint[], $10::timestamptz[], $11::int[], $12::text[], $13::text[],
                         $14::text[], $15::text[], $16::text[], $17::text[], $18::bytea[], $19::text[], $20::text[])
           AS e(id, topic_id, event_time, matched, event_id, event_type, subject,
                source, data_version, schema, body, traceparent, tracestate)
), matches AS (
    SELECT m.*, (now() AT TIME ZONE 'UTC')::date AS event_day, now() AS owed_since
      FROM fresh CROSS JOIN unnest($21::uuid[], $22::bigint[], $23::bigint[], $24::bool[], $25::int[], $26::bool[])
           WITH ORDINALITY AS m(event_uuid, topic_id, subscription_id, admitted, event_bytes, offered, place)
), -- deliveries.sql
, counted AS (
    -- An entry for each topic (event subscription 0), and one for each event subscription.
    INSERT INTO postrider_internal.rollup_deltas (slot, entries)
    SELECT (topic_id + subscription_id) % 8,
           array_agg(ROW (date_trunc('minute', now()), topic_id, subscription_id,
                          CASE subscription_id WHEN 0 THEN 'published' ELSE 'owed' END, '', NULL, count,
                          NULL)::postrider_internal.rollup_entry)
      FROM fresh CROSS JOIN unnest($6::bigint[], $7::bigint[], $2::bigint[]) AS c(topic_id, count, subscription_id)
     GROUP BY 1
)
SELECT c.version, now(), clock_timestamp(), l.ids, l.jobs, l.places
  FROM postrider_internal.catalogue c CROSS JOIN (
       SELECT coalesce(array_agg(id), '{}') AS ids, coalesce(array_agg(job_id), '{}') AS jobs,
              coalesce(array_agg(place), '{}') AS places
         FROM created WHERE local) l
