-- Lists a page of batches, the newest first: along the index of their ids or, if @by_subscription, along that of each
-- event subscription. Only the rows of the page are joined. @end is the last row that the search may read.
SELECT -- batch_columns.sql
  FROM (SELECT b.id
          FROM unnest(CASE WHEN @by_subscription THEN @subscriptions::bigint[] ELSE '{0}' END) AS one(id)
         CROSS JOIN LATERAL (
               SELECT b.id
                 FROM postrider_internal.batches b
                WHERE (NOT @by_subscription OR b.subscription_id = one.id)
                  -- + 0: along the index of thousands of event subscriptions, all of their batches would be sorted.
                  AND (@by_subscription OR @subscriptions IS NULL OR b.subscription_id + 0 = ANY (@subscriptions))
                  AND (@state::text IS NULL OR b.state = @state)
                  AND (@hold::text IS NULL
                       OR b.state = 'pending'
                          AND b.subscription_id IN (
                              SELECT h.subscription_id FROM postrider_internal.subscription_holds h
                               WHERE h.delivery_hold = @hold)
                          AND (b.hold IS NOT NULL
                               OR postrider_internal.hold_ahead(@hold, false, coalesce(b.job_id, 0)) IS NOT NULL))
                  AND (@cursor::bigint IS NULL OR CASE WHEN @backwards THEN b.id > @cursor ELSE b.id < @cursor END)
                  AND (@end::bigint IS NULL OR CASE WHEN @backwards THEN b.id <= @end ELSE b.id >= @end END)
                ORDER BY CASE WHEN @backwards THEN b.id END, b.id DESC
                LIMIT @limit) b
         ORDER BY CASE WHEN @backwards THEN b.id END, b.id DESC
         LIMIT @limit) page
  JOIN postrider.batches v ON v.batch_id = page.id
 ORDER BY CASE WHEN @backwards THEN page.id END, page.id DESC
