-- The conditions on events that the index of their ids has: those on their time. Days are partitions.
 WHERE (@cursor::uuid IS NULL OR CASE WHEN @backwards THEN e.id > @cursor ELSE e.id < @cursor END)
   AND (@from::timestamptz IS NULL
        OR e.published_at >= @from AND e.id >= @from_id::uuid AND e.day >= (@from AT TIME ZONE 'UTC')::date)
   AND (@to::timestamptz IS NULL
        OR e.published_at < @to AND e.id < @to_id::uuid AND e.day <= (@to AT TIME ZONE 'UTC')::date)
