-- Topics. The caller appends a condition on t.
SELECT t.id, t.name, t.kind, t.input_schema, t.input_schema_mapping, coalesce(t.event_retention_in_days, 0),
       coalesce(make_interval(mins => t.duplicate_detection_window_in_minutes), '0'), t.relay, t.key1_hash, t.key2_hash,
       t.version, t.created_at, t.updated_at, t.deleted_at, t.key1_sealed, t.key2_sealed
  FROM postrider_internal.topics t
