-- Returns the last dead letter that the search for a page reads, along the index of their time or of their names; no
-- row if there are fewer.
SELECT dead_lettered_at, id AS dead_letter_id
  FROM postrider_internal.dead_letters
 WHERE (@topic::text IS NULL OR @subscription::text IS NULL OR topic = @topic AND subscription = @subscription)
   AND (@from::timestamptz IS NULL OR dead_lettered_at >= @from)
   AND (@until::timestamptz IS NULL OR dead_lettered_at < @until)
   AND (@cursor::timestamptz IS NULL
        OR CASE WHEN @backwards THEN (dead_lettered_at, id) > (@cursor, @cursor_id::uuid)
                ELSE (dead_lettered_at, id) < (@cursor, @cursor_id) END)
 ORDER BY CASE WHEN @backwards THEN dead_lettered_at END, CASE WHEN @backwards THEN id END,
          dead_lettered_at DESC, id DESC
OFFSET @search LIMIT 1
