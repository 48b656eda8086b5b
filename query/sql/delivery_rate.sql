-- Reads the rate limit of an event subscription: its own one and that of its endpoint.
SELECT limit_per_second AS own, coalesce(counts, '') AS counts, coalesce(scope, '') AS scope,
       learned_per_second AS learned, closed_until, drains_at,
       drains_too_late AS too_late
  FROM postrider.delivery_rates WHERE subscription_id = @id
