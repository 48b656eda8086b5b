-- Finds the dead letters of a page, and where the search for them ended.
SELECT ids, scanned, reached_at, reached_id, condition
  FROM postrider_internal.find_dead_letters(@filter, @cursor::timestamptz, @cursor_id::uuid, @ascending, @enough, @most,
       @scan_limit, @time_limit)
