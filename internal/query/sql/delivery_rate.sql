-- Reads the rate limit of an event subscription, until when its endpoint is closed, and how many of its deliveries wait
-- for either, up to 10,000.
SELECT limit_per_second AS own, coalesce(counts, '') AS counts, coalesce(scope, '') AS scope,
       closed_until, drains_at, drains_too_late AS too_late,
       CASE (SELECT delivery_hold FROM postrider_internal.subscription_holds h WHERE h.subscription_id = @id)
       WHEN 'rate_limited'
       THEN least(10000,
                  (SELECT count(*) FROM (SELECT FROM postrider_internal.deliveries d
                                          WHERE d.subscription_id = @id AND d.hold IS NOT NULL LIMIT 10000) single)
                  + (SELECT coalesce(sum(b.members), 0) FROM postrider_internal.batches b
                      WHERE b.subscription_id = @id AND b.hold IS NOT NULL))::integer
       ELSE 0 END AS waiting
  FROM postrider.delivery_rates WHERE subscription_id = @id
