-- @export, if @job is its job.
SELECT x.id, t.name AS topic, s.name AS subscription, t.kind = 'namespace' AS namespace,
       CASE WHEN s.settings #>> '{deadLetterDestination,endpointType}' IN ('Blob', 'StorageBlob')
            THEN (s.settings #> '{deadLetterDestination,properties}')::jsonb END AS destination,
       x.file, x.created_at, x.tries
  FROM postrider_internal.exports x
  JOIN postrider_internal.event_subscriptions s ON s.id = x.subscription_id
  JOIN postrider_internal.topics t ON t.id = s.topic_id
 WHERE x.id = @export AND x.job_id = @job
