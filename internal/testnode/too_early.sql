SELECT count(*) FROM postrider_internal.delivery_attempts a
  JOIN postrider_internal.delivery_attempts b ON (b.delivery_id = a.delivery_id OR b.batch_id = a.batch_id)
      AND b.number = a.number + 1
 WHERE NOT a.late AND NOT b.late AND (a.verdict <> 'retry' OR b.started_at < greatest(a.next_attempt_at,
     a.started_at + make_interval(secs => a.duration_us / 1e6 + coalesce(a.floor_ms, 0) / 1e3))
       AND NOT EXISTS (SELECT FROM postrider.audit r WHERE r.action = 'delivery_retried'
           AND r.details ->> 'deliveryId' = b.delivery_id::text))
