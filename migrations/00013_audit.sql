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
    details jsonb) RETURNS void LANGUAGE sql BEGIN ATOMIC
INSERT INTO postrider_internal.audit (actor, address, action, topic, subscription, details)
VALUES (coalesce(note_audit.actor, session_user), CASE WHEN note_audit.actor IS NULL THEN host(inet_client_addr())
    ELSE nullif(note_audit.address, '') END, note_audit.action,
        nullif(note_audit.topic, ''), nullif(note_audit.subscription, ''),
        coalesce(jsonb_strip_nulls(note_audit.details), '{}'));
END;
-- +goose StatementEnd

CREATE VIEW postrider.audit AS
SELECT a.id AS audit_id, a.at, a.actor, a.address, a.action, a.topic, a.subscription, a.details, a.changes
FROM postrider_internal.audit a;
COMMENT ON VIEW postrider.audit IS
    'Changes of the configuration, actions on deliveries, access to secrets, and sign-ins. It contains no secret.';
COMMENT ON COLUMN postrider.audit.audit_id IS 'Id of the row; a later change has a higher one.';
COMMENT ON COLUMN postrider.audit.at IS 'When.';
COMMENT ON COLUMN postrider.audit.actor IS 'Who acted:
user:NAME: a session or personal key
key:NAME: an API key
admin: the admin token
cli: a command that writes to the database, such as user --database-url
validationUrl: a client that opened that URL
signIn: a client that sent a wrong password
unauthenticated: a client without a valid credential, or whose credential is not checked after too many wrong ones
postrider: the program, for example an expiration
otherwise: the database user who called a function by SQL';
COMMENT ON COLUMN postrider.audit.address IS
    'Address of the client, or of its proxy. For requests_rejected: the /64 of an IPv6 address; NULL stands for many '
    'addresses. Otherwise NULL = no request.';
COMMENT ON COLUMN postrider.audit.action IS 'What was done, by object:
topic: topic_created, topic_replaced, topic_deleted
access keys of a topic: topic_keys_shown, topic_keys_replaced
publishing in the dashboard: events_published
event subscription: subscription_created, subscription_replaced, subscription_deleted, subscription_expired
handshake: subscription_validation_requested, subscription_validated (its validationUrl was opened)
holds: subscription_paused, subscription_resumed, subscription_released, subscription_probed
secrets of an event subscription: endpoint_url_shown, delivery_attributes_shown
signing secrets: signing_secrets_shown, signing_secret_rotated
sample event: test_delivery_created
delivery: delivery_canceled, delivery_retried, delivery_dead_lettered
dead letter: dead_letter_redelivered, dead_letter_repaired, dead_letter_resolved, dead_letter_reopened,
    dead_letter_purged, dead_letters_imported
problem: problem_acknowledged, problem_resolved
relay feed: relay_callback_opened
event: event_redelivered, event_erased, subject_erased
operation on many: operation_started, operation_canceled, operation_finished
retry policy: policy_created, policy_replaced, policy_deleted
SQL query: query_run, query_saved, query_deleted
API key: api_key_created, api_key_revoked
user: user_created, user_replaced, user_deleted, password_changed (their own)
session: signed_in, signed_out, sessions_ended, sign_in_failed (a wrong password)
wrong credentials: requests_rejected (a row per minute, actor, address, status and topic)
postrider keys rotate: encryption_keys_retired';
COMMENT ON COLUMN postrider.audit.topic IS 'Topic; NULL = the action concerns no topic.';
COMMENT ON COLUMN postrider.audit.subscription IS 'Event subscription; NULL = the action concerns none.';
COMMENT ON COLUMN postrider.audit.details IS 'More about the action, never a secret or an erased subject:
topic, event subscription: settings (names of those that were set or changed), endpointValidation (changed, or skip)
pause: stopTimeToLive
access keys: keys (which were replaced)
delivery, dead letter: deliveryId, deadLetterId, eventId, systemId
dead_letter_resolved: also note
dead_letters_imported: deadLetters (how many)
problem: problemId, outcome, note, until (acknowledged)
repair: also paths (up to 100 changed members of the event, without values)
event: systemId, events (how many were published or erased)
operation: operationId, its parameters and its progress
retry policy: policy
query_run: query (name of a saved one), length and sha256 (of the SQL), rows, tookMilliseconds, failed
saved query: query, shared
API key: key, scope, expiresAt, and machine (the computer of a personal key)
user: user, role, disabled and query if they differ, password (true if it differs), sessions and keys (how many ended)
sign_in_failed: user, if it exists
requests_rejected: status (401, 403 or 429), times
encryption_keys_retired: key, retired (ids of keys)';
COMMENT ON COLUMN postrider.audit.changes IS
    'For a changed topic, event subscription, retry policy, user or key: each changed setting with its old and new '
    'value, {"labels": {"old": [], "new": ["a"]}}. {"changed": true} for a secret and for a value of more than 4 KiB. '
    'URLs are without their query. '
    'old is null if it was created, new is null if it was deleted. NULL if no configuration changed.';

-- +goose Down
DROP VIEW postrider.audit;
DROP FUNCTION postrider_internal.note_audit;
DROP TABLE postrider_internal.audit;
