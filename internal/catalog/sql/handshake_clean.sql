-- Deletes up to $1 handshakes that ended 30 days ago and validate no event subscription.
DELETE FROM postrider_internal.handshakes
 WHERE id IN (SELECT h.id
                FROM postrider_internal.handshakes h
               WHERE h.concluded_at < now() - interval '30 days'
                 AND NOT EXISTS (SELECT FROM postrider_internal.event_subscriptions s
                                  WHERE s.handshake_id = h.id AND s.deleted_at IS NULL)
               LIMIT $1 FOR UPDATE SKIP LOCKED)
