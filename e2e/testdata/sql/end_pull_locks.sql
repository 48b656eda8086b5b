UPDATE postrider_internal.river_job j SET scheduled_at = now()
 WHERE j.id IN (SELECT i.id FROM postrider_internal.river_job i
                 WHERE i.kind = 'lock' AND i.scheduled_at > now()
                   AND (i.id % 100 = 0 OR (i.args ->> 'f')::float8 < extract(epoch FROM now()) - 3)
                 ORDER BY i.id FOR UPDATE SKIP LOCKED)
