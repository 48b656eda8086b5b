-- T1 of a request with very many deliveries: stores its events, and one route with its job, if the catalog still has
-- the version ($1) that the filters were taken from. It returns the version that it found. $2 to $14 are the columns
-- of the events; $15 to $17 the topics, counts and event subscriptions.
WITH fresh AS (
    SELECT version FROM postrider_internal.catalogue WHERE version = $1
), stored AS (
    INSERT INTO postrider_internal.events (id, day, topic_id, published_at, event_time, catalogue_version, matched,
           event_id, event_type, subject, source, data_version, schema, body, traceparent, tracestate)
    SELECT e.id, (now() AT TIME ZONE 'UTC')::date, e.topic_id, now(), e.event_time, fresh.version, e.matched,
           e.event_id, e.event_type, e.subject, e.source, e.data_version, e.schema, e.body,
           nullif(e.traceparent, ''), nullif(e.tracestate, '')
      FROM fresh, unnest($2::uuid[], $3::bigint[], $4::timestamptz[], $5::int[], $6::text[], $7::text[], $8::text[],
                         $9::text[], $10::text[], $11::text[], $12::bytea[], $13::text[], $14::text[])
           AS e(id, topic_id, event_time, matched, event_id, event_type, subject,
                source, data_version, schema, body, traceparent, tracestate)
), route AS (
    INSERT INTO postrider_internal.routes (topic_id, event_day, event_uuids, job_id)
    SELECT ($3::bigint[])[1], (now() AT TIME ZONE 'UTC')::date, $2::uuid[],
           nextval('postrider_internal.river_job_id_seq') FROM fresh
    RETURNING id, job_id
), job AS (
    INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT job_id, 'available', jsonb_build_object('route', id), 'route', 'routes', 1, 1000, now() FROM route
), counted AS (
    INSERT INTO postrider_internal.rollup_deltas (slot, entries)
    SELECT (topic_id + subscription_id) % 8,
           array_agg(ROW (date_trunc('minute', now()), topic_id, subscription_id,
                          CASE subscription_id WHEN 0 THEN 'published' ELSE 'owed' END, '', NULL, count,
                          NULL)::postrider_internal.rollup_entry)
      FROM fresh CROSS JOIN unnest($15::bigint[], $16::bigint[], $17::bigint[]) AS c(topic_id, count, subscription_id)
     GROUP BY 1
)
SELECT version FROM postrider_internal.catalogue
