-- Lists a page of the audit, the newest row first. @end is the last row that the search for the page may read.
SELECT audit_id, at, actor, address, action, topic, subscription, details::text AS details, changes::text AS changes
  FROM postrider.audit
 WHERE (@actor::text IS NULL OR actor = @actor)
   AND (@action::text IS NULL OR action = @action)
   AND (@topic::text IS NULL OR topic = @topic)
   AND (@subscription::text IS NULL OR subscription = @subscription)
   AND (@from::timestamptz IS NULL OR at >= @from)
   AND (@to::timestamptz IS NULL OR at < @to)
   AND (@cursor::bigint IS NULL OR CASE WHEN @backwards THEN audit_id > @cursor ELSE audit_id < @cursor END)
   AND (@end::bigint IS NULL OR CASE WHEN @backwards THEN audit_id <= @end ELSE audit_id >= @end END)
 ORDER BY CASE WHEN @backwards THEN audit_id END, audit_id DESC
 LIMIT @limit
