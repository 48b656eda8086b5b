-- The conditions on deliveries that indexes have.
                WHERE (NOT @by_subscription OR d.subscription_id = one.id)
                  AND (@ids::bigint[] IS NULL OR d.id = ANY (@ids))
                  AND (@operation::uuid IS NULL OR d.operation_id = @operation)
                  AND (NOT @timed OR d.event_uuid BETWEEN @first::uuid AND @last::uuid)
                  AND (@cursor::bigint IS NULL
                       OR CASE WHEN @timed AND @backwards THEN (d.event_uuid, d.id) > (@cursor_event::uuid, @cursor)
                               WHEN @timed THEN (d.event_uuid, d.id) < (@cursor_event, @cursor)
                               WHEN @backwards THEN d.id > @cursor
                               ELSE d.id < @cursor END)
