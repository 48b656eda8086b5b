-- Adds up the latency buckets of counts.
coalesce(sum(latency_buckets[1]), 0)::bigint, coalesce(sum(latency_buckets[2]), 0)::bigint,
            coalesce(sum(latency_buckets[3]), 0)::bigint, coalesce(sum(latency_buckets[4]), 0)::bigint,
            coalesce(sum(latency_buckets[5]), 0)::bigint, coalesce(sum(latency_buckets[6]), 0)::bigint,
            coalesce(sum(latency_buckets[7]), 0)::bigint, coalesce(sum(latency_buckets[8]), 0)::bigint,
            coalesce(sum(latency_buckets[9]), 0)::bigint, coalesce(sum(latency_buckets[10]), 0)::bigint,
            coalesce(sum(latency_buckets[11]), 0)::bigint, coalesce(sum(latency_buckets[12]), 0)::bigint,
            coalesce(sum(latency_buckets[13]), 0)::bigint, coalesce(sum(latency_buckets[14]), 0)::bigint
