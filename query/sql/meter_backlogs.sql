-- Lists the backlogs, the largest first.
SELECT topic, subscription, owed_deliveries AS owed, coalesce(oldest_age_seconds, 0) AS oldest_seconds
  FROM postrider.backlogs
 ORDER BY owed_deliveries DESC, topic, subscription
