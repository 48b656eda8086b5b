-- Reads one event as it was accepted.
SELECT e.id AS system_id, t.name AS topic, e.event_id, e.event_type, e.subject, nullif(e.source, '') AS source,
       e.event_time, e.published_at, e.schema, e.matched, octet_length(e.body) AS body_bytes, e.topic_id,
       t.deleted_at IS NOT NULL AS topic_gone, e.data_version, e.traceparent, e.tracestate,
       e.catalog_version AS filter_version,
       CASE WHEN e.erased_at IS NULL THEN postrider.jsonb_error(e.body) END AS body_error, e.erased_at, e.body,
       r.edited_from, r.edited_by, r.edit
  FROM postrider_internal.events e
  JOIN postrider_internal.topics t ON t.id = e.topic_id
  LEFT JOIN postrider_internal.repairs r ON r.system_id = e.id
 WHERE e.id = @id
 ORDER BY e.day
 LIMIT 1
