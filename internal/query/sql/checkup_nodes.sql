-- Lists the nodes with the time since their last heartbeat.
SELECT id AS name, host, version, clock_timestamp() - beat_at AS silent, consistency_repairs
  FROM postrider_internal.nodes
 ORDER BY id
