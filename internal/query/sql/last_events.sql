-- Reads the last events of a topic as filters need them, the newest first. Only custom events have a time here.
SELECT schema, event_id, event_type, subject, source, data_version, body,
       CASE schema WHEN 'CustomEventSchema' THEN event_time END
  FROM postrider_internal.events
 WHERE topic_id = $1 AND erased_at IS NULL
 ORDER BY id DESC
 LIMIT $2
