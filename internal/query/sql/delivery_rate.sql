-- Reads the rate limit of an event subscription, and until when its endpoint is closed.
SELECT limit_per_second AS own, coalesce(counts, '') AS counts, coalesce(scope, '') AS scope,
       closed_until, drains_at, drains_too_late AS too_late
  FROM postrider.delivery_rates WHERE subscription_id = @id
