-- Adds up the counts from a minute on: those of minutes that are settled apart from those of the last two and the
-- current one, to which a transaction may still add (it ends within half a minute). So each minute is read for three
-- minutes and never again, and each key has at most two rows, however long ago the last reading was.
WITH span AS (
    SELECT coalesce(@from::timestamptz, date_trunc('minute', now() - make_interval(secs => @since))) AS first,
           date_trunc('minute', now()) - interval '2 minutes' AS settled
)
SELECT c.topic, coalesce(c.subscription, '') AS subscription, c.kind, c.detail, c.minute < span.settled AS over,
       sum(c.count)::bigint AS count, greatest(span.first, span.settled) AS settled,
       postrider_internal.sum_buckets(c.latency_buckets) AS latency
  FROM span
  JOIN postrider.delivery_counts c ON c.minute >= span.first
 GROUP BY 1, 2, 3, 4, 5, span.first, span.settled
