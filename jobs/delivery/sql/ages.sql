-- Reads since when the time to live of @deliveries has passed at @at. A pause that stops it moves that time; a resume
-- has perhaps not written it to the rows yet. A pause that began after @at moves nothing.
SELECT d.id,
       d.time_to_live_since
       + CASE WHEN st.stop_time_to_live AND d.id > st.moved_to
                   AND (st.resumed_at IS NULL OR d.time_to_live_since < st.resumed_at)
              THEN greatest(least(st.resumed_at, @at) - greatest(d.time_to_live_since, st.paused_since), '0')
              ELSE '0' END
  FROM postrider_internal.deliveries d
  LEFT JOIN LATERAL (
       SELECT * FROM postrider_internal.event_subscription_states st
        WHERE st.subscription_id = d.subscription_id AND st.paused_since IS NOT NULL LIMIT 1) st ON true
 WHERE d.id = ANY (@deliveries)
