-- Reads what simple filters need of stored events, and what counts toward their size: of custom events their envelope,
-- and of all but CloudEvents the source.
-- The days and ids are arrays: with a join, the planner may read whole partitions.
SELECT id, event_type, subject, published_at, octet_length(body),
       CASE schema WHEN 'CustomEventSchema' THEN schema ELSE '' END,
       CASE schema WHEN 'CustomEventSchema' THEN event_id ELSE '' END,
       CASE schema WHEN 'CustomEventSchema' THEN data_version ELSE '' END,
       CASE schema WHEN 'CloudEventSchemaV1_0' THEN '' ELSE source END
  FROM postrider_internal.events
 WHERE day = ANY ($1::date[]) AND id = ANY ($2::uuid[]) AND erased_at IS NULL
