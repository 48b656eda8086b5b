-- Which dead letters a filter matches, from a cursor to the end of a search.
 WHERE (@topic::text IS NULL OR topic = @topic)
   AND (@subscription::text IS NULL OR subscription = @subscription)
   AND (@reason::text IS NULL OR reason = @reason)
   AND (@outcome::text IS NULL OR last_outcome = @outcome)
   AND (@event_id::text IS NULL OR event_id = @event_id)
   AND (@event_type::text IS NULL OR event_type = @event_type)
   AND (@status::int IS NULL OR last_status = @status)
   AND (NOT @no_response OR last_status IS NULL)
   AND (@from::timestamptz IS NULL OR dead_lettered_at >= @from)
   AND (@until::timestamptz IS NULL OR dead_lettered_at < @until)
   AND (@cursor::timestamptz IS NULL
        OR CASE WHEN @backwards THEN (dead_lettered_at, dead_letter_id) > (@cursor, @cursor_id::uuid)
                ELSE (dead_lettered_at, dead_letter_id) < (@cursor, @cursor_id) END)
   AND (@end::timestamptz IS NULL
        OR CASE WHEN @backwards THEN (dead_lettered_at, dead_letter_id) <= (@end, @end_id::uuid)
                ELSE (dead_lettered_at, dead_letter_id) >= (@end, @end_id) END)
