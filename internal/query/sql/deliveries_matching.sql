-- All conditions on deliveries.
                -- deliveries_where.sql
                  AND (@end::bigint IS NULL
                       OR CASE WHEN @timed AND @backwards THEN (d.event_uuid, d.id) <= (@end_event::uuid, @end)
                               WHEN @timed THEN (d.event_uuid, d.id) >= (@end_event, @end)
                               WHEN @backwards THEN d.id <= @end
                               ELSE d.id >= @end END)
                  AND (@state::text IS NULL OR d.state = @state)
                  AND (@hold::text IS NULL
                       OR d.state = 'pending'
                          AND d.subscription_id IN (
                              SELECT h.subscription_id FROM postrider_internal.subscription_holds h
                               WHERE h.delivery_hold = @hold)
                          AND (d.hold IS NOT NULL
                               OR (SELECT b.hold FROM postrider_internal.batches b WHERE b.id = d.open_batch_id)
                                  IS NOT NULL
                               OR postrider_internal.hold_ahead(@hold, d.pulled, coalesce(
                                  (SELECT b.job_id FROM postrider_internal.batches b WHERE b.id = d.open_batch_id),
                                  d.job_id, 0)) IS NOT NULL))
                  AND (@outcome::text IS NULL OR d.last_outcome = @outcome)
                  AND (@created_until::timestamptz IS NULL OR d.created_at < @created_until)
                  AND (@events::uuid[] IS NULL OR d.event_uuid = ANY (@events))
                  AND (@by_subscription OR @topics::bigint[] IS NULL OR d.topic_id = ANY (@topics))
                  AND (@by_subscription OR @subscriptions IS NULL OR d.subscription_id = ANY (@subscriptions))
                  -- A value and not EXISTS, which PostgreSQL would make a join along all events.
                  AND (@from::timestamptz IS NULL AND @to::timestamptz IS NULL
                       OR (SELECT (@from::timestamptz IS NULL OR e.published_at >= @from)
                                  AND (@to::timestamptz IS NULL OR e.published_at < @to)
                             FROM postrider_internal.events e WHERE e.id = d.event_uuid AND e.day = d.event_day))
