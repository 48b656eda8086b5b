-- +goose Up

-- Who changed what, and who was shown a secret. A row is written in the transaction of the change itself, or committed
-- before a secret is returned: every change and every access has a row. It has names and no ids, because it outlives
-- the rows that it describes.
CREATE TABLE postrider_internal.audit (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at           timestamptz NOT NULL DEFAULT now(),
    actor        text NOT NULL,
    address      text,
    action       text NOT NULL,
    topic        text,
    subscription text,
    details      jsonb NOT NULL DEFAULT '{}',
    changes      jsonb
);
CREATE INDEX audit_at_idx ON postrider_internal.audit (at);

-- +goose StatementBegin
-- What the functions of schema postrider write down. Without an actor it is the caller: session_user is who logged in,
-- as whichever role the function runs.
CREATE FUNCTION postrider_internal.note_audit(actor text, address text, action text, topic text, subscription text,
    details jsonb) RETURNS void LANGUAGE sql AS $$
INSERT INTO postrider_internal.audit (actor, address, action, topic, subscription, details)
VALUES (coalesce(note_audit.actor, session_user), CASE WHEN note_audit.actor IS NULL THEN host(inet_client_addr())
    ELSE nullif(note_audit.address, '') END, note_audit.action,
        nullif(note_audit.topic, ''), nullif(note_audit.subscription, ''),
        coalesce(jsonb_strip_nulls(note_audit.details), '{}')) $$;
-- +goose StatementEnd

CREATE VIEW postrider.audit AS
SELECT a.id AS audit_id, a.at, a.actor, a.address, a.action, a.topic, a.subscription, a.details, a.changes
FROM postrider_internal.audit a;
COMMENT ON VIEW postrider.audit IS
    'Changes of the configuration, actions on deliveries, access to secrets, and sign-ins. It contains no secret.';
COMMENT ON COLUMN postrider.audit.audit_id IS 'Id of the row; a later change has a higher one.';
COMMENT ON COLUMN postrider.audit.at IS 'When.';
COMMENT ON COLUMN postrider.audit.actor IS
    'Who acted: user:NAME (signed in, or with a personal key), key:NAME (another API key), admin (the admin token), '
    'cli (a verb of the program that writes to the database), unauthenticated (requests without valid credentials, or '
    'whose credentials are not checked after too many wrong ones), signIn (a client that sent a wrong password), '
    'postrider (the program itself, as dev does with its demo), validationUrl (a client that opened that URL). For a '
    'function called by SQL: the database user who logged in.';
COMMENT ON COLUMN postrider.audit.address IS
    'Address of the client, or of its proxy. For requests_rejected: the /64 of an IPv6 address; NULL stands for many '
    'addresses. Otherwise NULL = no request.';
COMMENT ON COLUMN postrider.audit.action IS
    'What: topic_created, topic_replaced, topic_deleted, topic_keys_shown, topic_keys_replaced, subscription_created, '
    'subscription_replaced, subscription_deleted, subscription_expired, subscription_validation_requested, '
    'subscription_validated (its validationUrl was opened), subscription_paused, subscription_resumed, '
    'subscription_released, subscription_probed, test_delivery_created, events_published (from the dashboard), '
    'delivery_canceled, delivery_retried, delivery_dead_lettered, event_erased, subject_erased, endpoint_url_shown, '
    'delivery_attributes_shown, signing_secrets_shown, signing_secret_rotated, policy_created, policy_replaced, '
    'policy_deleted, dead_letter_redelivered, dead_letter_purged, operation_started, operation_canceled, '
    'operation_finished, api_key_created, api_key_revoked, login_approved, login_denied (of postrider login), '
    'user_created, user_replaced, user_deleted, password_changed, signed_in, sign_in_failed (a wrong password), '
    'signed_out, sessions_ended, requests_rejected (one row for those of a minute, an address, a status and a topic), '
    'encryption_keys_retired.';
COMMENT ON COLUMN postrider.audit.topic IS 'Topic; NULL = the action concerns no topic.';
COMMENT ON COLUMN postrider.audit.subscription IS 'Event subscription; NULL = the action concerns none.';
COMMENT ON COLUMN postrider.audit.details IS
    'More about the action: settings (names of those that a new event subscription has, or that differ now), '
    'endpointValidation (where it differs now or is skip), keys, stopTimeToLive, policy, deadLetterId, eventId, '
    'deliveryId, systemId, events (how many were erased), operationId with its request and its progress, key with its '
    'scope and expiresAt, machine and requestedFrom (the computer of a personal key, and its address), '
    'user (of sign_in_failed only if there is such a user) with role and disabled where they differ now and password: '
    'true where it does, status (401, 403 or 429 of requests_rejected), times (how many requests were rejected), '
    'sessions. Never a value that may be a secret, nor an erased subject.';
COMMENT ON COLUMN postrider.audit.changes IS
    'For a changed topic, event subscription, retry policy, user or key: each changed setting with its old and new '
    'value, {"labels": {"old": [], "new": ["a"]}}. {"changed": true} for a secret and for a value of more than 4 KiB. '
    'old is null if it was created, new is null if it was deleted. NULL if no configuration changed.';

-- +goose Down
DROP VIEW postrider.audit;
DROP FUNCTION postrider_internal.note_audit;
DROP TABLE postrider_internal.audit;
