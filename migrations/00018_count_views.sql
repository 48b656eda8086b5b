-- +goose Up
-- The views of the SQL contract on counts: of deliveries, backlogs and operations.
CREATE VIEW postrider_internal.unmerged_counts AS
SELECT e.minute, e.topic_id, e.subscription_id, e.kind, e.detail, e.count, e.operation_id,
       postrider_internal.add_to_bucket(NULL, e.bucket, e.count) AS latency_buckets
  FROM postrider_internal.rollup_deltas d
 CROSS JOIN LATERAL unnest(d.entries) AS e;
COMMENT ON VIEW postrider_internal.unmerged_counts IS 'Counts that were not added to postrider_internal.rollups yet.';

CREATE VIEW postrider.delivery_counts AS
SELECT c.minute, t.name AS topic, s.name AS subscription, c.kind, c.detail, c.count, c.latency_buckets,
       c.subscription_id
  FROM (SELECT minute, topic_id, subscription_id, kind, detail, sum(count)::bigint AS count,
               postrider_internal.sum_buckets(latency_buckets) AS latency_buckets
          FROM (SELECT minute, topic_id, subscription_id, kind, detail, count, latency_buckets
                  FROM postrider_internal.rollups
                 UNION ALL
                SELECT minute, topic_id, subscription_id, kind, detail, count, latency_buckets
                  FROM postrider_internal.unmerged_counts) counts
         GROUP BY minute, topic_id, subscription_id, kind, detail) c
  JOIN postrider_internal.topics t ON t.id = c.topic_id
  LEFT JOIN postrider_internal.event_subscriptions s ON s.id = c.subscription_id;
COMMENT ON VIEW postrider.delivery_counts IS
    'Exact counts of each minute, written in the transactions that they count. Fast at any number of deliveries; they '
    'outlive events and deliveries.';
COMMENT ON COLUMN postrider.delivery_counts.minute IS 'Beginning of the minute.';
COMMENT ON COLUMN postrider.delivery_counts.topic IS 'Topic.';
COMMENT ON COLUMN postrider.delivery_counts.subscription IS
    'Event subscription; NULL for published and duplicate, which count an event once.';
COMMENT ON COLUMN postrider.delivery_counts.kind IS
    'What is counted: published (events), duplicate (events that were published again and are stored once), matched '
    '(deliveries begun), attempt (requests, or locks of consumers), or how deliveries ended: delivered, dead_lettered, '
    'dropped, canceled.';
COMMENT ON COLUMN postrider.delivery_counts.detail IS
    'For an attempt its outcome, for an end its reason; FirstAttempt for delivered without a second attempt; '
    'otherwise empty.';
COMMENT ON COLUMN postrider.delivery_counts.count IS 'Number in this minute.';
COMMENT ON COLUMN postrider.delivery_counts.latency_buckets IS
    'Of attempts: how many took less than 5, 10, 25, 50, 100, 250, 500 ms, 1, 2.5, 5, 10, 30, 60 s, and longer, each '
    'without those before it; else NULL.';
COMMENT ON COLUMN postrider.delivery_counts.subscription_id IS
    'Id of the event subscription, see postrider.event_subscriptions; 0 for published and duplicate.';

CREATE VIEW postrider.backlogs AS
SELECT t.name AS topic, s.name AS subscription, o.deliveries AS pending_deliveries,
       (SELECT count(*) FROM postrider_internal.deliveries d WHERE d.subscription_id = s.id AND d.hold IS NOT NULL)
       + (SELECT coalesce(sum(b.members), 0)::bigint FROM postrider_internal.batches b
           WHERE b.subscription_id = s.id AND b.hold IS NOT NULL)
       + (SELECT count(*) FROM postrider_internal.held_available a WHERE a.subscription_id = s.id) AS held_deliveries,
       oldest.time_to_live_since AS oldest_pending_since,
       postrider_internal.seconds(now() - oldest.time_to_live_since) AS oldest_age_seconds,
           oldest.id AS oldest_delivery_id,
       s.id AS subscription_id
  FROM (SELECT subscription_id, sum(deliveries)::bigint AS deliveries
          FROM (SELECT subscription_id, deliveries FROM postrider_internal.backlog_counts
                 UNION ALL
                SELECT subscription_id, CASE kind WHEN 'matched' THEN count ELSE -count END
                  FROM postrider_internal.unmerged_counts
                 WHERE kind IN ('matched', 'delivered', 'dead_lettered', 'dropped', 'canceled')) changes
         GROUP BY 1
        HAVING sum(deliveries) > 0) o
  JOIN postrider_internal.event_subscriptions s ON s.id = o.subscription_id
  JOIN postrider_internal.topics t ON t.id = s.topic_id
  LEFT JOIN LATERAL (SELECT d.id, d.time_to_live_since FROM postrider_internal.deliveries d
                      WHERE d.subscription_id = o.subscription_id ORDER BY d.id LIMIT 1) oldest ON true;
COMMENT ON VIEW postrider.backlogs IS
    'Pending deliveries of each event subscription that has any: how many, and the oldest. Exact, and fast at any '
    'size.';
COMMENT ON COLUMN postrider.backlogs.topic IS 'Topic.';
COMMENT ON COLUMN postrider.backlogs.subscription IS 'Event subscription.';
COMMENT ON COLUMN postrider.backlogs.pending_deliveries IS 'Number of pending deliveries.';
COMMENT ON COLUMN postrider.backlogs.held_deliveries IS
    'Number of them on hold. It is counted in each query: check hold in postrider.event_subscriptions first.';
COMMENT ON COLUMN postrider.backlogs.oldest_pending_since IS 'Since when the oldest one is pending.';
COMMENT ON COLUMN postrider.backlogs.oldest_age_seconds IS 'Its age in seconds.';
COMMENT ON COLUMN postrider.backlogs.oldest_delivery_id IS 'Its id, see postrider.deliveries.';
COMMENT ON COLUMN postrider.backlogs.subscription_id IS
    'Id of the event subscription, see postrider.event_subscriptions.';

CREATE VIEW postrider.operations AS
SELECT o.id AS operation_id, o.kind, o.state, o.filter, o.topic, o.subscription, o.published_from, o.published_until,
       o.paths, o.note, o.rate_per_second, o.expected_count, o.counting, o.matched::integer AS matched, o.done,
       o.skipped, o.failed, o.last_error,
       CASE WHEN o.steps = 0 THEN NULL
            WHEN o.kind = 'redeliver_events' OR o.kind = 'erase_subject' AND NOT o.of_dead_letters
            THEN greatest(o.cursor_at, postrider_internal.time_of_id(o.cursor_id))
            ELSE nullif(o.cursor_at, '-infinity') END AS reached_at,
       o.started_by, o.created_at, o.finished_at,
       CASE WHEN k.redelivers THEN o.done - coalesce(e.ended, 0) END AS pending,
       CASE WHEN k.redelivers THEN coalesce(e.delivered, 0) END AS delivered,
       CASE WHEN k.redelivers THEN coalesce(e.dead_lettered, 0) END AS dead_lettered,
       CASE WHEN k.redelivers THEN coalesce(e.dropped, 0) END AS dropped,
       CASE WHEN k.redelivers THEN coalesce(e.canceled, 0) END AS canceled
  FROM postrider_internal.operations o
  LEFT JOIN (SELECT operation_id, sum(deliveries)::bigint AS ended,
                    (sum(deliveries) FILTER (WHERE state = 'delivered'))::bigint AS delivered,
                    (sum(deliveries) FILTER (WHERE state = 'dead_lettered'))::bigint AS dead_lettered,
                    (sum(deliveries) FILTER (WHERE state = 'dropped'))::bigint AS dropped,
                    (sum(deliveries) FILTER (WHERE state = 'canceled'))::bigint AS canceled
               FROM (SELECT operation_id, state, deliveries FROM postrider_internal.operation_outcomes
                      UNION ALL
                     SELECT operation_id, kind, count FROM postrider_internal.unmerged_counts
                      WHERE operation_id IS NOT NULL) ends
              GROUP BY operation_id) e ON e.operation_id = o.id
 CROSS JOIN LATERAL (SELECT o.kind IN ('redeliver', 'repair', 'redeliver_events') AS redelivers) k;
COMMENT ON VIEW postrider.operations IS
    'Redeliveries, repairs, resolutions, purges, retries, cancellations and erasures of many, running and ended. Ended '
    'ones are kept for 30 days.';
COMMENT ON COLUMN postrider.operations.operation_id IS 'Id of the operation; a later one has a higher id.';
COMMENT ON COLUMN postrider.operations.kind IS
    'redeliver (dead letters), repair (dead letters, with a merge patch of their events), resolve (dead letters), '
    'purge (dead letters), retry (deliveries), cancel (deliveries), redeliver_events (past events) or erase_subject.';
COMMENT ON COLUMN postrider.operations.state IS 'running; done; canceled (by an operator); failed: see last_error.';
COMMENT ON COLUMN postrider.operations.filter IS
    'Filter of the dead letters, see postrider.count_dead_letters(), or of the deliveries; {} = all. The filter of an '
    'erasure has the '
    'subject while it is running. {"erased": true}: the filter contained an erased subject.';
COMMENT ON COLUMN postrider.operations.topic IS
    'Topic of the event subscription that receives all redeliveries; NULL = each dead letter''s own. Of an erasure, '
    'the topic whose events are erased.';
COMMENT ON COLUMN postrider.operations.subscription IS 'That event subscription.';
COMMENT ON COLUMN postrider.operations.published_from IS 'Of past events: from this time of publishing on.';
COMMENT ON COLUMN postrider.operations.published_until IS 'Of past events: before this time of publishing.';
COMMENT ON COLUMN postrider.operations.paths IS
    'Of a repair: the members of the events that its patch changes, as an array of up to 100 JSON Pointers.';
COMMENT ON COLUMN postrider.operations.note IS 'Note of a resolve; NULL = none.';
COMMENT ON COLUMN postrider.operations.rate_per_second IS 'Most per second; NULL = no limit.';
COMMENT ON COLUMN postrider.operations.expected_count IS
    'Number that must match. Otherwise the operation fails and changes nothing. NULL = any number.';
COMMENT ON COLUMN postrider.operations.counting IS 'true: it counts what matches, and has changed nothing yet.';
COMMENT ON COLUMN postrider.operations.matched IS
    'Number of dead letters or deliveries that matched at the start; so far, while counting. NULL for past events and '
    'erasures, which are not counted.';
COMMENT ON COLUMN postrider.operations.done IS 'Number redelivered, resolved, purged, retried, canceled or erased.';
COMMENT ON COLUMN postrider.operations.skipped IS
    'Number of dead letters that other users purged, resolved or redelivered first, or of deliveries that ended first '
    'or have an attempt in progress; of past events, those that the filter does not match.';
COMMENT ON COLUMN postrider.operations.failed IS
    'Number that could not be redelivered: their event subscription was deleted, has expired or does not accept their '
    'schema, or they were erased. Of repairs, also those whose edited event is invalid; of retries, those on hold.';
COMMENT ON COLUMN postrider.operations.last_error IS 'The last error; NULL = none.';
COMMENT ON COLUMN postrider.operations.reached_at IS
    'Progress of the search: the time of the last dead letter or event that was checked. NULL = not begun, or an '
    'operation on deliveries. An erasure checks the events, then the dead letters.';
COMMENT ON COLUMN postrider.operations.started_by IS 'Who started it; values as in postrider.audit.actor.';
COMMENT ON COLUMN postrider.operations.created_at IS
    'When it was started. It does not include dead letters that were written later.';
COMMENT ON COLUMN postrider.operations.finished_at IS 'When it ended; NULL = it is running.';
COMMENT ON COLUMN postrider.operations.pending IS
    'Number of its redeliveries that are pending: postrider.deliveries with this operation_id. NULL, as the four '
    'counts below, unless it is a redelivery or a repair.';
COMMENT ON COLUMN postrider.operations.delivered IS
    'Number of its redeliveries that were delivered. Exact, and kept after the rows of the deliveries are removed.';
COMMENT ON COLUMN postrider.operations.dead_lettered IS 'Number of its redeliveries that became dead letters again.';
COMMENT ON COLUMN postrider.operations.dropped IS
    'Number of its redeliveries that were dropped: they failed, and their event subscription keeps no dead letters.';
COMMENT ON COLUMN postrider.operations.canceled IS 'Number of its redeliveries that were canceled.';

-- +goose Down
DROP VIEW postrider.operations, postrider.backlogs, postrider.delivery_counts, postrider_internal.unmerged_counts;
