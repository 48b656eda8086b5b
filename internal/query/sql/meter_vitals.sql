-- Reads the state of all nodes and of the database. Deliveries that consumers pull and dead letters to export are
-- counted up to @limit.
SELECT 0::bigint AS pending_deliveries, 0::float8 AS oldest_pending_seconds,
       -- living_nodes.sql
       (SELECT coalesce(max(postrider_internal.seconds(clock_timestamp() - beat_at)), 0)::float8
          FROM postrider.nodes) AS oldest_beat_seconds,
       (SELECT coalesce(max(to_date(right(c.relname, 8), 'YYYYMMDD')) - (now() AT TIME ZONE 'UTC')::date + 1, 0)
          FROM pg_inherits i
          JOIN pg_class c ON c.oid = i.inhrelid
         WHERE i.inhparent = 'postrider_internal.events'::regclass) AS partition_days,
       (SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables
         WHERE schemaname = 'postrider_internal' AND relname = 'river_job') AS dead_jobs,
       pg_database_size(current_database()) AS database_bytes,
       (SELECT coalesce(max(postrider_internal.seconds(clock_timestamp() - xact_start)), 0)::float8
          FROM pg_stat_activity
         WHERE datname = current_database() AND backend_type = 'client backend'
           AND pid <> pg_backend_pid()) AS oldest_transaction_seconds,
       (SELECT count(*) FROM (SELECT FROM postrider_internal.deliveries
                               WHERE available_at <= now() LIMIT @limit) few) AS available_deliveries,
       (SELECT count(*) FROM (SELECT FROM postrider_internal.river_job
                               WHERE state = 'scheduled' AND queue = 'locks' LIMIT @limit) few) AS locked_deliveries,
       least(@limit, (SELECT count(*) FROM (SELECT FROM postrider_internal.dead_letters
                                             WHERE export_state = 'pending' AND export_id IS NULL LIMIT @limit) waiting)
             + (SELECT count(*) FROM (SELECT FROM postrider_internal.dead_letters
                                       WHERE export_id
                                           IS NOT NULL LIMIT @limit) taken))::bigint AS unexported_dead_letters,
       (SELECT coalesce(max(postrider_internal.seconds(clock_timestamp() - created_at)), 0)::float8
          FROM postrider_internal.exports) AS oldest_export_seconds
