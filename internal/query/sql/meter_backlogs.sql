-- Lists the backlogs, the largest first.
SELECT topic, subscription, pending_deliveries AS pending, coalesce(oldest_age_seconds, 0) AS oldest_seconds
  FROM postrider.backlogs
 ORDER BY pending_deliveries DESC, topic, subscription
