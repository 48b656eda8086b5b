-- +goose Up
-- The limits on deliveries, see deliveryRate of an event subscription.

-- Each row gives its time to one request after the other: next_at is the first time that no request has. A job that is
-- created for a delivery takes the next times in the same statement, so that a crash loses none, and all nodes together
-- keep one limit. key is subscription:ID or host:HOST.
CREATE TABLE postrider_internal.delivery_rates (
    key     text PRIMARY KEY,
    next_at timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);

-- +goose Down
DROP TABLE postrider_internal.delivery_rates;
