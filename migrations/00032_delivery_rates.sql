-- +goose Up
-- The limits on deliveries as users see them.

-- The host of an endpoint, with its port unless that is the default one, as catalog.Rate has it.
CREATE FUNCTION postrider_internal.endpoint_host(base_url text) RETURNS text LANGUAGE sql IMMUTABLE
RETURN regexp_replace(regexp_replace(substring(lower(base_url COLLATE "C") FROM '^[a-z]+://[^/?]+'),
                                     '^(http://.*):80$|^(https://.*):443$', '\1\2'), '^[a-z]+://', '');

-- An event subscription on hold takes no permits of a limit now: its deliveries count only for itself, after its hold.
-- drains_too_late compares the turns of two deliveries with the ends of their time to live: of the newest one, and of
-- the first one whose turn comes after the end of the oldest one. It reads at most 1,000 entries of an index to find
-- the latter.
CREATE VIEW postrider.delivery_rates AS
WITH own AS (
    SELECT s.id, (d.rate ->> 'limit')::float8 / coalesce((d.rate ->> 'periodInSeconds')::float8, 1) AS per_second,
           coalesce(d.rate ->> 'scope', 'subscription') AS scope, coalesce(d.rate ->> 'count', 'requests') AS counts,
           CASE d.rate ->> 'scope' WHEN 'endpoint' THEN postrider_internal.endpoint_host(s.endpoint_base_url)
                ELSE s.id::text END AS shared
      FROM postrider_internal.event_subscriptions s
     CROSS JOIN LATERAL (SELECT s.settings::jsonb -> 'deliveryRate' AS rate OFFSET 0) d
     WHERE s.deleted_at IS NULL AND s.rate_limited
), lowest AS (
    SELECT *, min(per_second) OVER (PARTITION BY scope, shared) AS limit_per_second FROM own
), limits AS (
    SELECT v.topic, v.subscription, v.subscription_id, v.hold, v.hold_until,
           make_interval(mins => v.event_time_to_live_in_minutes) AS time_to_live, l.scope, l.counts, l.shared,
           l.limit_per_second, r.closed_until, coalesce(b.pending_deliveries, 0) AS pending_deliveries,
           coalesce(b.pending_deliveries, 0)::float8 / v.max_events_per_batch AS requests
      FROM postrider.event_subscriptions v
      JOIN postrider_internal.event_subscriptions s ON s.id = v.subscription_id
      LEFT JOIN lowest l ON l.id = v.subscription_id
      LEFT JOIN postrider_internal.delivery_rates r
        ON r.key = postrider_internal.closed_key(s) AND r.closed_until > now()
      LEFT JOIN postrider.backlogs b ON b.subscription_id = v.subscription_id
     WHERE l.id IS NOT NULL OR r.key IS NOT NULL
), shares AS (
    SELECT l.*, CASE WHEN hold IS NULL THEN 0 ELSE t.permits END
                + coalesce(sum(t.permits) FILTER (WHERE hold IS NULL) OVER (PARTITION BY scope, shared), 0) AS permits
      FROM limits l
     CROSS JOIN LATERAL (SELECT CASE counts WHEN 'events' THEN pending_deliveries ELSE requests END AS permits) t
), drains AS (
    SELECT s.*, coalesce(greatest(closed_until, hold_until) - now(), '0')
                + make_interval(secs => CASE WHEN limit_per_second > 0
                                             THEN least(permits / limit_per_second, 1e10) END) AS drains_in
      FROM shares s
)
SELECT d.topic, d.subscription, d.limit_per_second, d.scope, d.counts,
       d.closed_until, d.pending_deliveries,
       CASE WHEN d.hold IS NULL OR d.hold_until IS NOT NULL THEN now() + d.drains_in END AS drains_at,
       coalesce(greatest(clock.at, newest.time_to_live_since) + d.drains_in
                    > newest.time_to_live_since + d.time_to_live
                OR (SELECT greatest(clock.at, late.time_to_live_since)
                           + d.drains_in * ((turn.n + 1) / d.pending_deliveries)
                               > late.time_to_live_since + d.time_to_live
                      FROM (SELECT f.time_to_live_since FROM postrider_internal.deliveries f
                             WHERE d.pending_deliveries > 0 AND f.subscription_id = d.subscription_id
                               AND f.hold IS NOT NULL
                             ORDER BY f.time_to_live_since, f.id LIMIT 1) oldest
                     CROSS JOIN LATERAL (
                           SELECT least(greatest(floor(d.pending_deliveries * postrider_internal.seconds(
                               oldest.time_to_live_since + d.time_to_live
                               - greatest(clock.at, oldest.time_to_live_since))
                               / nullif(postrider_internal.seconds(d.drains_in), 0)), 0), 1000)::float8 AS n) turn
                     CROSS JOIN LATERAL (
                           SELECT n.time_to_live_since FROM postrider_internal.deliveries n
                            WHERE n.subscription_id = d.subscription_id AND n.hold IS NOT NULL
                            ORDER BY n.time_to_live_since, n.id OFFSET turn.n LIMIT 1) late), false) AS drains_too_late,
       d.subscription_id
  FROM drains d
  LEFT JOIN postrider_internal.event_subscription_states st
    ON st.subscription_id = d.subscription_id AND st.stop_time_to_live
 -- A pause can stop the time to live.
 CROSS JOIN LATERAL (SELECT coalesce(st.paused_since, now()) AS at) clock
  LEFT JOIN LATERAL (
       SELECT n.time_to_live_since FROM postrider_internal.deliveries n
        WHERE d.pending_deliveries > 0 AND n.subscription_id = d.subscription_id ORDER BY n.id DESC LIMIT 1) newest
    ON true;
COMMENT ON VIEW postrider.delivery_rates IS
    'Event subscriptions with a rate limit (deliveryRate), or whose endpoint has requested to wait.';
COMMENT ON COLUMN postrider.delivery_rates.topic IS 'Topic.';
COMMENT ON COLUMN postrider.delivery_rates.subscription IS 'Event subscription.';
COMMENT ON COLUMN postrider.delivery_rates.limit_per_second IS
    'Limit per second that is set; with scope endpoint the lowest of those that share the host. NULL = none.';
COMMENT ON COLUMN postrider.delivery_rates.scope IS 'subscription or endpoint; NULL without a limit that is set.';
COMMENT ON COLUMN postrider.delivery_rates.counts IS 'requests or events; NULL without a limit that is set.';
COMMENT ON COLUMN postrider.delivery_rates.closed_until IS
    'Until when the endpoint is closed: it responded 429, or 503 with Retry-After. NULL = it is not, or behavior is '
    'documented, which ignores that.';
COMMENT ON COLUMN postrider.delivery_rates.pending_deliveries IS 'Number of pending deliveries.';
COMMENT ON COLUMN postrider.delivery_rates.drains_at IS
    'When the pending deliveries are sent at this rate, if no further ones are added and batches are full. Those of '
    'other event subscriptions that share the limit count, unless they are on hold. A probation delays it until the '
    'next probe. NULL without a limit that is set, and while paused or not validated.';
COMMENT ON COLUMN postrider.delivery_rates.drains_too_late IS
    'Some deliveries'' time to live ends before their turn: they will end without success.';
COMMENT ON COLUMN postrider.delivery_rates.subscription_id IS
    'Id of the event subscription, see postrider.event_subscriptions.';

-- +goose Down
DROP VIEW postrider.delivery_rates;
DROP FUNCTION postrider_internal.endpoint_host;
