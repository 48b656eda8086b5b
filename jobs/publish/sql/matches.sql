-- The deliveries of a publish. It is a part of publish.sql and publish_plain.sql.
matches AS (
    SELECT m.*, (now() AT TIME ZONE 'UTC')::date AS event_day, now() AS time_to_live_since
      FROM fresh CROSS JOIN unnest(
           @deliveries_event_uuid::uuid[], @deliveries_topic_id::bigint[], @deliveries_subscription_id::bigint[],
           @deliveries_admitted::bool[], @deliveries_event_bytes::int[], @deliveries_reserved::bool[])
           WITH ORDINALITY AS m(event_uuid, topic_id, subscription_id, admitted, event_bytes, reserved, position)
),
