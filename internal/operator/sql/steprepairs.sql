-- Redelivers the repaired dead letters of one step of the operation @operation. One without edit is redelivered as it
-- is.
WITH items AS MATERIALIZED (
    SELECT i.*, row_number() OVER () AS n FROM @items AS i(@items.*)
)
SELECT count(*) FILTER (WHERE r.problem IS NULL) AS done,
       count(*) FILTER (WHERE r.problem <> 'redelivered') AS failed,
       max(format('dead letter %s: %s', r.letter, postrider_internal.result_message(r.problem)))
           FILTER (WHERE r.problem <> 'redelivered') AS error
  FROM postrider_internal.redeliver_dead_letters(
       ARRAY (SELECT i.dead_letter_id FROM items i ORDER BY i.n),
       ARRAY (SELECT ROW (CASE WHEN i.edited THEN postrider_internal.new_uuid() END, i.event_time, i.event_id,
                          i.event_type, i.subject, i.source, i.data_version, i.traceparent, i.tracestate,
                          i.body)::postrider_internal.envelope FROM items i ORDER BY i.n),
       @started_by, @target, @again_before, @operation) r
