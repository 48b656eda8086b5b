-- Reads the members of @batch that have not left it, in the order of sending (see bind.sql), with their events.
WITH members AS MATERIALIZED (
    SELECT id, event_uuid, event_day, time_to_live_since FROM postrider_internal.deliveries WHERE batch_id = @batch
), -- member_events.sql
