-- Returns the last event that the search for a page reads; no row if there are fewer.
SELECT e.id
  FROM postrider_internal.events e -- events_where.sql
 ORDER BY CASE WHEN @backwards THEN e.id END, e.id DESC
OFFSET @search LIMIT 1
