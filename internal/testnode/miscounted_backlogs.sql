SELECT count(*) FROM (SELECT subscription_id, count(*) AS n FROM postrider_internal.deliveries GROUP BY 1) truth
  FULL JOIN postrider.backlogs counted USING (subscription_id)
  WHERE truth.n IS DISTINCT FROM counted.pending_deliveries
