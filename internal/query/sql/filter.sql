-- Reads the filter of an event subscription, and what is needed to read events of its topic.
SELECT t.id, t.name, t.kind, t.input_schema, t.input_schema_mapping, s.settings -> 'filter'
  FROM postrider_internal.topics t
  JOIN postrider_internal.event_subscriptions s ON s.topic_id = t.id AND s.deleted_at IS NULL
 WHERE t.name = $1 AND t.deleted_at IS NULL AND s.name = $2
