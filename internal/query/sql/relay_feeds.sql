-- Lists a page of relay feeds, the newest first; @id selects one.
SELECT f.*
  FROM postrider.relay_feeds f
 WHERE (@topic::text IS NULL OR f.topic = @topic) AND (@id::bigint IS NULL OR f.relay_feed_id = @id)
   AND (@cursor::bigint IS NULL
        OR CASE WHEN @backwards THEN f.relay_feed_id > @cursor ELSE f.relay_feed_id < @cursor END)
 ORDER BY CASE WHEN @backwards THEN f.relay_feed_id END, f.relay_feed_id DESC
 LIMIT @limit
