-- Stores the events if "fresh" has a row, and counts the destinations. It is a part of publish.sql, publish_plain.sql
-- and storeroute.sql.
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
      FROM fresh CROSS JOIN -- destinations.sql
    HAVING count(*) > 0
),
