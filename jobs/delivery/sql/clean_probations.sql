-- Deletes probations, untouched for an hour, that no event subscription uses any more.
DELETE FROM postrider_internal.probations p
 WHERE p.updated_at < now() - interval '1 hour' AND NOT EXISTS (
       SELECT FROM postrider_internal.event_subscriptions s
         JOIN postrider_internal.retry_policies r ON r.name = s.retry_policy
        WHERE s.deleted_at IS NULL
          AND postrider_internal.rest_key(r.probation_scope, s.endpoint_hash, s.id) = p.rest_key)
