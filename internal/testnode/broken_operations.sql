SELECT count(*) FROM postrider_internal.operations o
 WHERE (o.state = 'running')::int <> (SELECT count(*) FROM postrider_internal.river_job j WHERE j.kind = 'operation'
     AND j.finalized_at IS NULL AND j.args ->> 'o' = o.id::text AND j.id = o.job_id)
