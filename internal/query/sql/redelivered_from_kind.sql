-- What redelivered_from is. An id of a dead letter is never one of an operation or of an event.
       (SELECT CASE WHEN EXISTS (SELECT FROM postrider_internal.dead_letters l WHERE l.id = origin.id)
                    THEN 'dead letter'
                    WHEN EXISTS (SELECT FROM postrider_internal.operations o WHERE o.id = origin.id)
                    THEN 'operation'
                    WHEN origin.id = system_id THEN 'event'
                    ELSE '' END
          FROM (SELECT redelivered_from AS id) origin) AS redelivered_from_kind
