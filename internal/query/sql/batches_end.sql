-- Returns the batch at which the search for a page ends: the first one of those that are @search rows further along
-- each index; no row if there are fewer.
SELECT b.id
  FROM unnest(CASE WHEN @by_subscription THEN @subscriptions::bigint[] ELSE '{0}' END) AS one(id)
 CROSS JOIN LATERAL (
       SELECT b.id
         FROM postrider_internal.batches b
        WHERE (NOT @by_subscription OR b.subscription_id = one.id)
          AND (@cursor::bigint IS NULL OR CASE WHEN @backwards THEN b.id > @cursor ELSE b.id < @cursor END)
        ORDER BY CASE WHEN @backwards THEN b.id END, b.id DESC
       OFFSET @search LIMIT 1) b
 ORDER BY CASE WHEN @backwards THEN b.id END, b.id DESC
 LIMIT 1
