-- Fails the handshakes whose validationUrl, or callback, was not opened in time. Returns those with a validationUrl.
WITH expired AS (
    UPDATE postrider_internal.handshakes
       SET state = 'failed', concluded_at = now(),
           message = CASE purpose WHEN 'callback' THEN 'no operator has opened it in time' ELSE $1 END
     WHERE state = 'awaiting' AND callback_expires_at <= now() RETURNING id, purpose, message
), step AS (
    INSERT INTO postrider_internal.handshake_steps (handshake_id, at, sent, verdict, node)
    SELECT id, now(), 'nothing', message, $2 FROM expired
)
SELECT id FROM expired WHERE purpose <> 'callback'
