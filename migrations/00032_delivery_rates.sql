-- +goose Up
-- The limits on deliveries: those that event subscriptions set (deliveryRate), and those that endpoints' responses have
-- shown (429, and 503 with Retry-After).

-- Each row gives its times to one request after the other: next_at is the first time that no request has. A job that is
-- created for a delivery takes the next times in the same statement, so that a crash loses none, and all nodes together
-- keep one limit. key is subscription:ID, host:HOST or, for what was learned, endpoint:HASH.
CREATE TABLE postrider_internal.delivery_rates (
    key          text PRIMARY KEY,
    next_at      timestamptz NOT NULL DEFAULT '-infinity',
    -- What was learned; NULL = nothing. After Retry-After the rate rises to ramp_to.
    per_second   double precision,
    ramp_to      double precision,
    closed_until timestamptz,
    changed_at   timestamptz,
    lowered_at   timestamptz
) WITH (fillfactor = 50);

-- +goose Down
DROP TABLE postrider_internal.delivery_rates;
