-- +goose Up
-- The limits on deliveries: those that event subscriptions set (deliveryRate), and those that endpoints' responses have
-- shown (429, and 503 with Retry-After).

-- Each row gives its times to one request after the other: next_at is the first time that no request has. A job that is
-- created for a delivery takes the next times in the same statement, so that a crash loses none, and all nodes together
-- keep one limit. key is subscription:ID, host:HOST or, for what was learned, endpoint:HASH.
CREATE TABLE postrider_internal.delivery_rates (
    key          text PRIMARY KEY,
    next_at      timestamptz NOT NULL DEFAULT '-infinity',
    -- The time between two requests or events when next_at was set: a changed limit changes the wait with it.
    step         interval,
    -- What was learned; NULL = nothing. After Retry-After the rate rises to ramp_to.
    per_second   double precision,
    ramp_to      double precision,
    closed_until timestamptz,
    changed_at   timestamptz,
    lowered_at   timestamptz
) WITH (fillfactor = 50);

CREATE VIEW postrider.delivery_rates AS
WITH own AS (
    SELECT s.id, (d.rate ->> 'limit')::float8 / coalesce((d.rate ->> 'periodInSeconds')::float8, 1) AS per_second,
           coalesce(d.rate ->> 'scope', 'subscription') AS scope, coalesce(d.rate ->> 'count', 'requests') AS counts,
           CASE d.rate ->> 'scope' WHEN 'endpoint'
                THEN lower(substring(s.endpoint_base_url FROM '^[A-Za-z]+://([^/?]+)')) ELSE s.id::text END AS shared
      FROM postrider_internal.event_subscriptions s
     CROSS JOIN LATERAL (SELECT s.settings::jsonb -> 'deliveryRate' AS rate OFFSET 0) d
     WHERE s.deleted_at IS NULL AND jsonb_typeof(d.rate) = 'object'
), lowest AS (
    SELECT *, min(per_second) OVER (PARTITION BY scope, shared) AS limit_per_second FROM own
), limits AS (
    SELECT v.topic, v.subscription, v.subscription_id, v.max_events_per_batch, v.event_time_to_live_in_minutes, l.scope,
           l.counts, l.limit_per_second, r.per_second AS learned_per_second,
           CASE WHEN r.closed_until > now() THEN r.closed_until END AS closed_until
      FROM postrider.event_subscriptions v
      JOIN postrider_internal.event_subscriptions s ON s.id = v.subscription_id
      LEFT JOIN lowest l ON l.id = v.subscription_id
      LEFT JOIN postrider_internal.delivery_rates r
        ON r.key = 'endpoint:' || encode(s.endpoint_hash, 'hex') AND r.changed_at > now() - interval '1 hour'
     WHERE l.id IS NOT NULL OR r.per_second IS NOT NULL
), drains AS (
    SELECT l.*, coalesce(b.pending_deliveries, 0) AS pending_deliveries,
           greatest(coalesce(l.closed_until - now(), '0'), '0') + make_interval(secs => least(1e10,
               coalesce(b.pending_deliveries, 0)
               / least(l.limit_per_second * CASE l.counts WHEN 'events' THEN 1 ELSE l.max_events_per_batch END,
                       l.learned_per_second * l.max_events_per_batch))) AS drains_in
      FROM limits l LEFT JOIN postrider.backlogs b ON b.subscription_id = l.subscription_id
)
SELECT topic, subscription, limit_per_second, scope, counts, learned_per_second, closed_until, pending_deliveries,
       now() + drains_in AS drains_at,
       drains_in > make_interval(mins => event_time_to_live_in_minutes) AS drains_too_late, subscription_id
  FROM drains;
COMMENT ON VIEW postrider.delivery_rates IS
    'Rate limits of event subscriptions: those that they set (deliveryRate) and those that their endpoints'' responses '
    'have shown.';
COMMENT ON COLUMN postrider.delivery_rates.topic IS 'Topic.';
COMMENT ON COLUMN postrider.delivery_rates.subscription IS 'Event subscription.';
COMMENT ON COLUMN postrider.delivery_rates.limit_per_second IS
    'Limit per second that is set; with scope endpoint the lowest of those that share the host. NULL = none.';
COMMENT ON COLUMN postrider.delivery_rates.scope IS 'subscription or endpoint; NULL without a limit that is set.';
COMMENT ON COLUMN postrider.delivery_rates.counts IS 'requests or events; NULL without a limit that is set.';
COMMENT ON COLUMN postrider.delivery_rates.learned_per_second IS
    'Requests per second that the endpoint accepts, learned from 429, and from 503 with Retry-After; NULL = not '
    'learned, or an hour ago.';
COMMENT ON COLUMN postrider.delivery_rates.closed_until IS
    'Until when the endpoint requested to wait (Retry-After); NULL = it did not.';
COMMENT ON COLUMN postrider.delivery_rates.pending_deliveries IS 'Number of pending deliveries.';
COMMENT ON COLUMN postrider.delivery_rates.drains_at IS
    'When the pending deliveries are sent at this rate, if no further ones are added and batches are full.';
COMMENT ON COLUMN postrider.delivery_rates.drains_too_late IS
    'That takes longer than the time to live: some deliveries will end without success.';
COMMENT ON COLUMN postrider.delivery_rates.subscription_id IS
    'Id of the event subscription, see postrider.event_subscriptions.';

-- +goose Down
DROP VIEW postrider.delivery_rates;
DROP TABLE postrider_internal.delivery_rates;
