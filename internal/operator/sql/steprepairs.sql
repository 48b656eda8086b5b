-- Redelivers the repaired dead letters of one step of the operation @operation. One without edit is redelivered as it
-- is.
WITH items AS MATERIALIZED (
    SELECT i.*, row_number() OVER () AS n
      FROM unnest(@items_dead_letter_id::uuid[], @items_edited::bool[], @items_event_time::timestamptz[],
                  @items_event_id::text[], @items_event_type::text[], @items_subject::text[], @items_source::text[],
                  @items_data_version::text[], @items_traceparent::text[], @items_tracestate::text[],
                  @items_body::bytea[])
           AS i(dead_letter_id, edited, event_time, event_id, event_type, subject, source, data_version, traceparent,
                tracestate, body)
)
SELECT count(*) FILTER (WHERE r.problem IS NULL) AS done,
       count(*) FILTER (WHERE r.problem NOT IN ('redelivered', 'resolved')) AS failed,
       max(format('dead letter %s: %s', r.letter, postrider_internal.result_message(r.problem)))
           FILTER (WHERE r.problem NOT IN ('redelivered', 'resolved')) AS error
  FROM postrider_internal.redeliver_dead_letters(
       ARRAY (SELECT i.dead_letter_id FROM items i ORDER BY i.n),
       ARRAY (SELECT ROW (CASE WHEN i.edited THEN postrider_internal.new_uuid() END, i.event_time, i.event_id,
                          i.event_type, i.subject, i.source, i.data_version, i.traceparent, i.tracestate,
                          i.body)::postrider_internal.envelope FROM items i ORDER BY i.n),
       @started_by, @target, @again_before, @operation) r
