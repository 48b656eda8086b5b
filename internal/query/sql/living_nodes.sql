-- The number of nodes that deliver. One that was killed stays in the view until another one finds it dead.
       (SELECT count(*)::int FROM postrider.nodes
         WHERE beat_at > clock_timestamp() - interval '15 seconds') AS nodes,
