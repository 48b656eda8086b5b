-- Reads stored events with everything that advanced filters need. Bodies are returned until they reach $3 bytes;
-- the events after that are only marked.
SELECT id, event_type, subject, published_at, octet_length(body), schema, event_id, source, data_version,
       CASE WHEN before < $3 THEN body ELSE '' END, before >= $3,
       CASE schema WHEN 'CustomEventSchema' THEN event_time END
  FROM (SELECT *, sum(octet_length(body)) OVER (ORDER BY id) - octet_length(body) AS before
          FROM postrider_internal.events
         WHERE day = ANY ($1::date[]) AND id = ANY ($2::uuid[]) AND erased_at IS NULL) AS e
