-- Lists up to @limit event subscriptions with a rate limit or a closed endpoint, the largest backlogs first.
SELECT topic, subscription, limit_per_second AS own,
       extract(epoch FROM drains_at - now())::float8 AS drain_seconds, drains_too_late AS too_late
  FROM postrider.delivery_rates
 ORDER BY pending_deliveries DESC, topic, subscription LIMIT @limit
