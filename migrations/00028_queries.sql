-- +goose Up

-- The login roles that run the queries of users, created by `postrider migrate up`. A role runs one query at a time, so
-- that no user sees or ends the query of another one. The passwords are sealed.
CREATE TABLE postrider_internal.query_logins (
    id              smallint PRIMARY KEY,
    role            text NOT NULL UNIQUE,
    password_sealed bytea NOT NULL
);
CREATE TRIGGER reject_retired_keys BEFORE INSERT OR UPDATE OF password_sealed ON postrider_internal.query_logins
    FOR EACH ROW EXECUTE FUNCTION postrider_internal.reject_retired_keys('password_sealed');

-- Saved queries. A temporary one (expires_at) is found only by its name, which is random. owner is an actor as in the
-- audit. A name is unique among an owner's queries, and among the shared ones: so it reveals nothing about private
-- ones.
CREATE TABLE postrider_internal.queries (
    name        text NOT NULL CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$'),
    description text NOT NULL CHECK (char_length(description) <= 1000),
    sql         text NOT NULL CHECK (octet_length(sql) <= 65536),
    owner       text NOT NULL,
    shared      boolean NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    changed_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz,
    PRIMARY KEY (owner, name)
);
CREATE UNIQUE INDEX queries_shared_idx ON postrider_internal.queries (name) WHERE shared;
CREATE INDEX queries_expires_idx ON postrider_internal.queries (expires_at) WHERE expires_at IS NOT NULL;

-- +goose Down
DROP TABLE postrider_internal.queries, postrider_internal.query_logins;
