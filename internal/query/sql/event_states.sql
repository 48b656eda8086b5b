-- Counts the deliveries of events by their state, at most 100 (StatesLimit) of each event. They ended from @day, that
-- of the oldest event, to @today: other partitions are not read.
SELECT i.id AS system_id, d.state AS name, count(*) AS count
  FROM unnest(@events::uuid[]) AS i(id)
 CROSS JOIN LATERAL (
       SELECT 'pending' AS state
         FROM postrider_internal.deliveries p
        WHERE p.event_uuid = i.id
        UNION ALL
       SELECT h.state
         FROM postrider_internal.delivery_history h
        WHERE h.event_uuid = i.id AND h.day BETWEEN @day::date AND @today::date
        LIMIT 100) d
 GROUP BY 1, 2
 ORDER BY 1, 2
