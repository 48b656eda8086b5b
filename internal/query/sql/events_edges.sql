-- Returns the first and the last event that was published from @from to @to; NULL if there is none.
SELECT (SELECT e.id FROM postrider_internal.events e -- events_where.sql
         ORDER BY e.id LIMIT 1) AS first,
       (SELECT e.id FROM postrider_internal.events e -- events_where.sql
         ORDER BY e.id DESC LIMIT 1) AS last
