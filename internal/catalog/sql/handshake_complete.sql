-- Ends the handshake $1 successfully, with a step that says why ($2).
WITH done AS (
    UPDATE postrider_internal.handshakes SET state = 'succeeded', message = $2, concluded_at = now() WHERE id = $1
)
INSERT INTO postrider_internal.handshake_steps (handshake_id, at, sent, verdict, node)
VALUES ($1, now(), 'nothing', $2, $3)
