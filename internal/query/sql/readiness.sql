-- Reports whether the database knows the key $1, whether events of today have a partition, and how long ago node $2
-- wrote its last heartbeat; NULL without one.
SELECT EXISTS (SELECT FROM postrider_internal.encryption_keys WHERE key_id = $1),
       to_regclass('postrider_internal.events_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')) IS NOT NULL,
       (SELECT clock_timestamp() - beat_at FROM postrider_internal.nodes WHERE id = $2)
