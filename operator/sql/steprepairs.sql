-- Redelivers the repaired items of one step of the operation @operation, see postrider_internal.step_repairs().
WITH items AS MATERIALIZED (
    SELECT * FROM @items AS i(@items.*)
)
SELECT *
  FROM postrider_internal.step_repairs(@operation,
       ARRAY (SELECT ROW (@operation, i.position, i.dead_letter_id, NULL,
                          i.result)::postrider_internal.operation_results FROM items i ORDER BY i.position),
       ARRAY (SELECT ROW (CASE WHEN i.edited THEN postrider_internal.new_uuid() END, i.event_time, i.event_id,
                          i.event_type, i.subject, i.source, i.data_version, i.traceparent, i.tracestate,
                          i.body)::postrider_internal.envelope FROM items i ORDER BY i.position))
