-- Reads the next events of one day in the order of their ids, and returns those of a topic and a time of publishing.
-- Events that a redelivery stored again are of another day. Repairs were not published to the topic.
WITH scanned AS MATERIALIZED (
    SELECT id, topic_id, published_at
      FROM postrider_internal.events
     WHERE day = $1 AND id > $2 AND id < $3
     ORDER BY id
     LIMIT $4
), met AS (
    SELECT id
      FROM scanned
     WHERE topic_id = $5 AND published_at >= $6 AND published_at < $7 AND (published_at AT TIME ZONE 'UTC')::date = $1
       AND NOT EXISTS (SELECT FROM postrider_internal.repairs r WHERE r.system_id = scanned.id)
     ORDER BY id
     LIMIT $8
)
SELECT ARRAY (SELECT id FROM met ORDER BY id), (SELECT id FROM scanned ORDER BY id DESC LIMIT 1),
       (SELECT count(*) FROM scanned)
