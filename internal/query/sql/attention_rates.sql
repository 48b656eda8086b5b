-- Lists how many deliveries wait for a rate limit or a closed endpoint, up to 10,000, and until when.
SELECT r.topic, r.subscription, r.closed_until, r.drains_at, coalesce(r.drains_too_late, false) AS too_late,
       least(10000,
             (SELECT count(*) FROM (SELECT FROM postrider_internal.deliveries d
                                     WHERE d.subscription_id = r.subscription_id AND d.hold IS NOT NULL
                                     LIMIT 10000) single)
             + (SELECT coalesce(sum(b.members), 0) FROM postrider_internal.batches b
                 WHERE b.subscription_id = r.subscription_id AND b.hold IS NOT NULL))::integer AS waiting
  FROM postrider.delivery_rates r
  JOIN postrider_internal.subscription_holds h ON h.subscription_id = r.subscription_id
 WHERE h.delivery_hold = 'rate_limited'
