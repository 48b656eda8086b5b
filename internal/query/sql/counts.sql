-- Adds up counts in steps of @step minutes. They are kept by the minute for each event subscription, and in the sums of
-- rollup_sums (@sums). Each is found by its key, with one lookup for each step and event subscription: among ten
-- thousand event subscriptions too. What was not merged yet is added.
WITH lookups AS NOT MATERIALIZED (
    SELECT g.at, o.topic_id, coalesce(o.subscription_id, 0) AS subscription_id
      FROM generate_series(@from::timestamptz, now(), make_interval(mins => @grain)) AS g(at)
     CROSS JOIN unnest(@topics::bigint[], @subscriptions::bigint[]) AS o(topic_id, subscription_id)
), counted AS (
    SELECT c.minute AS at, c.kind, c.detail, c.count, c.latency_buckets
      FROM lookups l
     CROSS JOIN LATERAL (SELECT * FROM postrider_internal.rollups
                          WHERE minute = l.at AND topic_id = l.topic_id
                            AND (@subscriptions = '{}' OR subscription_id = l.subscription_id)
                         OFFSET 0) c
     WHERE NOT @sums
     UNION ALL
    SELECT c.begins, c.kind, c.detail, c.count, c.latency_buckets
      FROM lookups l
     CROSS JOIN LATERAL (SELECT * FROM postrider_internal.rollup_sums
                          WHERE span = @grain AND begins = l.at AND topic_id = l.topic_id
                            AND subscription_id = l.subscription_id
                         OFFSET 0) c
     WHERE @sums
     UNION ALL
    SELECT minute, kind, detail, count, latency_buckets
      FROM postrider_internal.unmerged_counts
     WHERE minute >= @from
       AND (@topics = '{0}' OR topic_id = ANY (@topics))
       AND (@subscriptions = '{}' OR subscription_id = ANY (@subscriptions))
)
SELECT date_bin(make_interval(mins => @step), at, 'epoch') AS at, kind, detail, sum(count)::bigint AS count,
       postrider_internal.sum_buckets(latency_buckets) AS latency_buckets
  FROM counted
 GROUP BY 1, 2, 3
 ORDER BY 1
