-- Counts the deliveries of events by their state, at most 100 (StatesLimit) of each event. A delivery ends on the day of its event at
-- the earliest: @day leaves out the older partitions.
SELECT i.id AS system_id, d.state AS name, count(*) AS count
  FROM unnest(@events::uuid[]) AS i(id)
 CROSS JOIN LATERAL (
       SELECT 'pending' AS state
         FROM postrider_internal.deliveries p
        WHERE p.event_uuid = i.id
        UNION ALL
       SELECT h.state
         FROM postrider_internal.delivery_history h
        WHERE h.event_uuid = i.id AND h.day >= @day::date
        LIMIT 100) d
 GROUP BY 1, 2
 ORDER BY 1, 2
