-- Lists up to @limit event subscriptions with a rate limit, the largest backlogs first.
SELECT topic, subscription, limit_per_second AS own, learned_per_second AS learned,
       greatest(extract(epoch FROM drains_at - now()), 0)::float8 AS drain_seconds,
       coalesce(drains_too_late, false) AS too_late
  FROM postrider.delivery_rates
 WHERE drains_at IS NOT NULL
 ORDER BY pending_deliveries DESC, topic, subscription LIMIT @limit
