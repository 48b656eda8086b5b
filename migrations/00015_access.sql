-- +goose Up

-- Who may use the service, beside the admin token, which is configuration and in no table. Of an API key and of a
-- session there is only the SHA-256: both are 32 random bytes, which cannot be guessed, so a fast hash is enough.
-- People choose passwords, so those have a slow one.
CREATE TABLE postrider_internal.users (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name            text NOT NULL UNIQUE CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._@-]{1,62}$'),
    password_hash   text NOT NULL CHECK (password_hash ~ '^\$argon2id\$'),
    role            text NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    created_at      timestamptz NOT NULL DEFAULT now(),
    created_by      text NOT NULL,
    changed_at      timestamptz NOT NULL DEFAULT now(),
    disabled_at     timestamptz,
    last_sign_in_at timestamptz,
    -- Whether the user may run SQL queries; NULL = as the role.
    query           boolean
);

CREATE TABLE postrider_internal.api_keys (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text NOT NULL UNIQUE,
    key_hash     bytea NOT NULL UNIQUE CHECK (octet_length(key_hash) = 32),
    hint         text NOT NULL,
    scope        text NOT NULL CHECK (scope IN ('publish', 'receive', 'read', 'operate', 'admin')),
    -- Names and not ids: the key is for the topic and the event subscription that have these names. NULL = every one.
    topic        text,
    subscription text,
    created_at   timestamptz NOT NULL DEFAULT now(),
    created_by   text NOT NULL,
    expires_at   timestamptz,
    last_used_at timestamptz,
    revoked_at   timestamptz,
    -- A personal key has an owner, and ends with them. machine is the computer that it is for.
    user_id      bigint REFERENCES postrider_internal.users ON DELETE CASCADE,
    machine      text CHECK (char_length(machine) <= 100),
    -- Whether it may run SQL queries; NULL = as the scope. A personal key follows its owner.
    query        boolean,
    CONSTRAINT topic_of_publishers_and_consumers CHECK (topic IS NULL OR scope IN ('publish', 'receive')),
    CONSTRAINT subscription_of_consumers CHECK (subscription IS NULL OR scope = 'receive' AND topic IS NOT NULL),
    CONSTRAINT queries_of_readers CHECK (query IS NOT TRUE OR scope NOT IN ('publish', 'receive')),
    CONSTRAINT personal_keys_expire CHECK (
        user_id IS NULL OR scope NOT IN ('publish', 'receive') AND expires_at IS NOT NULL)
);
CREATE INDEX api_keys_user_idx ON postrider_internal.api_keys (user_id) WHERE user_id IS NOT NULL;

-- +goose StatementBegin
-- What a key may do now: a personal key (role is its owner's) never more than its owner.
CREATE FUNCTION postrider_internal.key_scope(scope text, role text) RETURNS text LANGUAGE sql IMMUTABLE
RETURN CASE WHEN role IS NULL THEN scope ELSE (ARRAY ['read', 'operate', 'admin'])[least(
    array_position(ARRAY ['read', 'operate', 'admin'], scope), array_position(ARRAY ['viewer', 'operator', 'admin'],
        role))] END;

-- Whether a user with the role, or a key with the scope, may run SQL queries.
CREATE FUNCTION postrider_internal.may_query(query boolean, role_or_scope text) RETURNS boolean LANGUAGE sql
    IMMUTABLE RETURN coalesce(query, role_or_scope IN ('operator', 'operate', 'admin'));
-- +goose StatementEnd

CREATE TABLE postrider_internal.sessions (
    token_hash   bytea PRIMARY KEY CHECK (octet_length(token_hash) = 32),
    user_id      bigint NOT NULL REFERENCES postrider_internal.users ON DELETE CASCADE,
    created_at   timestamptz NOT NULL DEFAULT now(),
    last_seen_at timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz NOT NULL,
    address      text,
    user_agent   text CHECK (char_length(user_agent) <= 300)
);
CREATE INDEX sessions_user_idx ON postrider_internal.sessions (user_id);

-- +goose StatementBegin
-- A session ends 12 hours after its owner was last seen, and at its own expires_at in any case.
CREATE FUNCTION postrider_internal.session_ends(s postrider_internal.sessions) RETURNS timestamptz LANGUAGE sql
    STABLE RETURN least(s.expires_at, s.last_seen_at + interval '12 hours');
-- +goose StatementEnd

CREATE VIEW postrider.api_keys AS
SELECT k.name, postrider_internal.key_scope(k.scope, u.role) AS scope, k.topic, k.subscription, k.hint,
       CASE WHEN k.revoked_at IS NOT NULL THEN 'revoked' WHEN k.expires_at <= now() THEN 'expired' ELSE 'active' END
       AS state,
       k.created_at, k.created_by, k.expires_at, k.last_used_at, k.revoked_at, u.name AS owner, k.machine,
       postrider_internal.may_query(coalesce(u.query, k.query), postrider_internal.key_scope(k.scope, u.role)) AS query
  FROM postrider_internal.api_keys k LEFT JOIN postrider_internal.users u ON u.id = k.user_id;
COMMENT ON VIEW postrider.api_keys IS
    'API keys of programs and personal keys of users, without the keys. Revoked and expired ones stay listed: those '
    'of programs for --keep-keys-days, personal keys for 7 days.';
COMMENT ON COLUMN postrider.api_keys.name IS
    'Name of the key. The audit calls a program that sends it key:NAME, and the owner of a personal key user:OWNER.';
COMMENT ON COLUMN postrider.api_keys.scope IS
    'Rights: publish (publishing only), receive (pull delivery only), read (a viewer''s), operate (an operator''s), '
    'admin. A personal key never has more than its owner has now.';
COMMENT ON COLUMN postrider.api_keys.topic IS
    'Of scope publish or receive: the only topic that it can publish to or receive from; NULL = every topic.';
COMMENT ON COLUMN postrider.api_keys.subscription IS
    'Of scope receive: the only event subscription that it can receive from; NULL = every one of the topic.';
COMMENT ON COLUMN postrider.api_keys.hint IS 'Its first 12 characters, to recognize it. The other 35 are not stored.';
COMMENT ON COLUMN postrider.api_keys.state IS 'active, expired or revoked.';
COMMENT ON COLUMN postrider.api_keys.created_at IS 'When it was created.';
COMMENT ON COLUMN postrider.api_keys.created_by IS 'Who created it; values as in postrider.audit.actor.';
COMMENT ON COLUMN postrider.api_keys.expires_at IS 'When it stops working; NULL = never.';
COMMENT ON COLUMN postrider.api_keys.last_used_at IS 'When it was last used, to the minute; NULL = never.';
COMMENT ON COLUMN postrider.api_keys.revoked_at IS 'When it was revoked; NULL = it was not.';
COMMENT ON COLUMN postrider.api_keys.owner IS 'User whose personal key it is; NULL = a program''s key.';
COMMENT ON COLUMN postrider.api_keys.machine IS
    'Name of the computer that the personal key is for; NULL = not a personal key.';
COMMENT ON COLUMN postrider.api_keys.query IS
    'Whether it may run SQL queries. By default those of scope operate and admin may; a personal key follows its '
    'owner.';

CREATE VIEW postrider.users AS
SELECT u.name, u.role, u.disabled_at IS NOT NULL AS disabled, u.created_at, u.created_by, u.changed_at, u.disabled_at,
       u.last_sign_in_at,
       (SELECT count(*)::integer FROM postrider_internal.sessions s WHERE s.user_id = u.id
           AND postrider_internal.session_ends(s) > now()) AS sessions,
       postrider_internal.may_query(u.query, u.role) AS query
  FROM postrider_internal.users u;
COMMENT ON VIEW postrider.users IS 'Users of the dashboard, without their passwords.';
COMMENT ON COLUMN postrider.users.name IS 'Name to sign in with; the audit calls them user:NAME.';
COMMENT ON COLUMN postrider.users.role IS 'viewer, operator or admin; each includes the rights of the one before.';
COMMENT ON COLUMN postrider.users.disabled IS 'They cannot sign in.';
COMMENT ON COLUMN postrider.users.created_at IS 'When they were added.';
COMMENT ON COLUMN postrider.users.created_by IS 'Who added the user; values as in postrider.audit.actor.';
COMMENT ON COLUMN postrider.users.changed_at IS 'When role, password or disabled last changed.';
COMMENT ON COLUMN postrider.users.disabled_at IS 'Since when they cannot sign in; NULL = they can.';
COMMENT ON COLUMN postrider.users.last_sign_in_at IS 'When they last signed in; NULL = never.';
COMMENT ON COLUMN postrider.users.sessions IS 'How many sessions are open.';
COMMENT ON COLUMN postrider.users.query IS 'Whether they may run SQL queries. By default operators and admins may.';

-- +goose Down
DROP VIEW postrider.users, postrider.api_keys;
DROP FUNCTION postrider_internal.session_ends;
DROP TABLE postrider_internal.sessions;
DROP FUNCTION postrider_internal.may_query, postrider_internal.key_scope;
DROP TABLE postrider_internal.api_keys, postrider_internal.users;
