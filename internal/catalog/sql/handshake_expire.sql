-- Fails the handshakes whose validationUrl was not opened in time.
WITH expired AS (
    UPDATE postrider_internal.handshakes SET state = 'failed', message = $1, concluded_at = now()
     WHERE state = 'awaiting' AND callback_expires_at <= now() RETURNING id
), step AS (
    INSERT INTO postrider_internal.handshake_steps (handshake_id, at, sent, verdict, node)
    SELECT id, now(), 'nothing', $1, $2 FROM expired
)
SELECT id FROM expired
