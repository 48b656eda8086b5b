-- Reports whether the database knows the key $1, whether events of today have a partition, and how long ago node $2
-- wrote its last heartbeat: -1 without one.
SELECT EXISTS (SELECT FROM postrider_internal.encryption_keys WHERE key_id = $1),
       to_regclass('postrider_internal.events_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')) IS NOT NULL,
       coalesce((SELECT postrider_internal.seconds(clock_timestamp() - beat_at)::float8
                   FROM postrider_internal.nodes WHERE id = $2), -1)
