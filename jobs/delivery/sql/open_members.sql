-- Reads @deliveries, which are open, in the order of sending, with their events.
WITH members AS MATERIALIZED (
    SELECT id, event_uuid, event_day, time_to_live_since FROM postrider_internal.deliveries WHERE id = ANY (@deliveries)
), -- member_events.sql
