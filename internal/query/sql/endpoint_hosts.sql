-- Lists the hosts with the most event subscriptions. Of a broker it is the list of its servers.
SELECT substring(endpoint_base_url FROM '^[^:]+://[^/]+') AS url, count(*)::int AS subscriptions,
       min(topic || '/' || subscription) AS example, (count(*) OVER ())::int AS hosts
  FROM postrider.event_subscriptions
 WHERE delivery_mode = 'Push'
 GROUP BY 1
 ORDER BY 2 DESC, 1
 LIMIT @most
