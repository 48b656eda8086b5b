-- Lists the newest handshakes of an event subscription with their steps.
SELECT h.handshake_id, h.purpose, h.state, h.message, h.created_at, h.current, st.at, st.sent, st.verdict, st.status,
       st.error, st.response, st.duration_ms::float8 AS duration_ms
  FROM postrider.handshakes h
  LEFT JOIN postrider.handshake_steps st ON st.handshake_id = h.handshake_id
 WHERE h.topic = @topic AND h.subscription = @subscription
 ORDER BY h.handshake_id DESC, st.at DESC NULLS LAST
 LIMIT 50
