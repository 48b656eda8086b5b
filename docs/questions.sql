-- Questions of operators. `postrider sql --question NAME` runs one, docs/reference/sql.md shows them. Each begins with
-- its name and title, and notes if it has some, and is one statement.

-- pending: What is pending for an event subscription, and why does it wait?
select delivery_id, event_id, time_to_live_since, waits_for, attempts, last_outcome, last_status, next_attempt_at
  from postrider.deliveries
 where subscription_id = (select subscription_id from postrider.event_subscriptions
                           where topic = 'orders' and subscription = 'billing')
   and state = 'pending'
 order by delivery_id limit 20;

-- failing: Which endpoints fail, and how?
select topic, subscription, detail as outcome, sum(count) as requests
  from postrider.delivery_counts
 where minute > now() - interval '1 hour' and kind = 'attempt' and detail not in ('Delivered', 'Acknowledged')
 group by 1, 2, 3 order by requests desc limit 20;

-- event: What became of one event?
select e.topic, e.published_at, e.matched, d.subscription, d.state, d.reason, d.waits_for, d.attempts, d.last_outcome,
       d.last_status, d.next_attempt_at, d.delivery_id, e.body
  from postrider.events e
  left join lateral (select * from postrider.deliveries where system_id = e.system_id offset 0) d on true
 where e.event_id = 'order-42'
 order by e.published_at, d.delivery_id;

-- dead-letters: What was dead-lettered in the last hour, and why?
select topic, subscription, reason, last_status, count(*) as dead_letters, max(dead_lettered_at) as newest
  from postrider.dead_letters
 where dead_lettered_at > now() - interval '1 hour'
 group by 1, 2, 3, 4 order by dead_letters desc limit 20;

-- oldest: How long has the oldest event waited?
select topic, subscription, oldest_pending_since, oldest_age_seconds, oldest_delivery_id
  from postrider.backlogs order by oldest_pending_since limit 10;

-- backlogs: Which event subscriptions have the biggest backlogs?
select topic, subscription, pending_deliveries, oldest_pending_since
  from postrider.backlogs order by pending_deliveries desc limit 10;

-- first-attempt: How many deliveries succeed at the first attempt?
select topic, subscription, sum(count) as ended,
       round(100 * coalesce(sum(count) filter (where detail = 'FirstAttempt'), 0) / sum(count), 1)
           as first_attempt_percent,
       round(100 * coalesce(sum(count) filter (where kind = 'delivered'), 0) / sum(count), 1) as delivered_percent
  from postrider.delivery_counts
 where minute > now() - interval '1 hour' and kind in ('delivered', 'dead_lettered', 'dropped', 'canceled')
 group by 1, 2 order by first_attempt_percent limit 20;

-- latency: How long do endpoints take to respond?
-- The 95th percentile; NULL is more than a minute.
with taken as (
  select s.endpoint_base_url, b.bucket, sum(b.requests) as requests
    from postrider.delivery_counts c join postrider.event_subscriptions s using (subscription_id)
   cross join unnest(c.latency_buckets) with ordinality as b(requests, bucket)
   where c.minute > now() - interval '15 minutes' and c.kind = 'attempt' and b.requests > 0 group by 1, 2
), added_up as (
  select *, sum(requests) over (partition by endpoint_base_url order by bucket) as up_to,
         sum(requests) over (partition by endpoint_base_url) as total from taken
)
select endpoint_base_url, total as requests,
       (array[5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000])[min(bucket)] as p95_below_ms
  from added_up where up_to >= 0.95 * total
 group by 1, 2 order by min(bucket) desc limit 20;

-- holds: What is in probation or on hold, why, and until when?
select topic, subscription, hold, hold_cause, hold_since, hold_until, probing, endpoint_base_url
  from postrider.event_subscriptions where hold is not null order by hold_since;

-- failed-attempts: Which requests of an event subscription failed last?
select started_at, delivery_id, batch_id, number, status, outcome, error, response_excerpt, why, next_attempt_at
  from postrider.delivery_attempts
 where subscription_id = (select subscription_id from postrider.event_subscriptions
                           where topic = 'orders' and subscription = 'billing')
   and verdict <> 'deliver'
 order by started_at desc limit 20;

-- unmatched: Which events matched no event subscription?
select published_at, topic, event_id, event_type, subject
  from postrider.events where matched = 0 order by published_at desc limit 20;

-- batch: What was in the last batch of an event subscription?
select batch_id, b.state, b.attempts, m.position, m.event_id, m.delivery_id, m.left_reason
  from postrider.batches b join postrider.batch_members m using (batch_id)
 where batch_id = (select batch_id from postrider.batches
                    where subscription_id = (select subscription_id from postrider.event_subscriptions
                                              where topic = 'orders' and subscription = 'billing')
                    order by batch_id desc limit 1)
 order by m.position;

-- minutes: What happened in the last five minutes?
select minute, kind, detail, sum(count) as count
  from postrider.delivery_counts where minute > now() - interval '5 minutes'
 group by 1, 2, 3 order by minute desc, count desc;

-- nodes: What did each node do in the last five minutes?
select node, n.beat_at, a.requests, a.failed, a.interrupted, a.average_ms
  from (select node, count(*) as requests, count(*) filter (where verdict <> 'deliver') as failed,
               count(*) filter (where reruns > 0) as interrupted, round(avg(duration_ms), 1) as average_ms
          from postrider.delivery_attempts
         where started_at > now() - interval '5 minutes' and day >= date 'yesterday' group by 1) a
  full join postrider.nodes n using (node)
 order by requests desc nulls last;

-- interrupted: Which requests did a crash interrupt?
select started_at, topic, subscription, delivery_id, batch_id, number, reruns, outcome, node
  from postrider.delivery_attempts where reruns > 0 order by started_at desc limit 20;

-- lineage: What became of the redeliveries of an event?
select d.subscription, d.delivery_id, d.redelivered_from, d.time_to_live_since, d.state, d.reason, d.attempts,
       d.dead_letter_id, l.redelivered_at
  from postrider.deliveries d left join postrider.dead_letters l using (dead_letter_id)
 where d.system_id = any(array(
         select system_id from postrider.dead_letters where topic = 'orders' and event_id = 'order-42'))
   and (d.dead_letter_id is not null or d.redelivered_from is not null)
 order by d.subscription, d.delivery_id;

-- changes: What was changed before the failures began?
-- Failures begin in the first minute, of the last three hours, in which more than half of the
-- requests failed.
with began as (
  select min(minute) as failing_since from (
    select minute from postrider.delivery_counts
     where minute > now() - interval '3 hours' and kind = 'attempt'
       and subscription_id = (select subscription_id from postrider.event_subscriptions
                               where topic = 'orders' and subscription = 'billing')
     group by minute
    having sum(count) filter (where detail not in ('Delivered', 'Acknowledged')) > sum(count) / 2) failing
)
select failing_since, at, actor, address, action, topic, subscription, details, changes
  from began join postrider.audit
    on at between failing_since - interval '1 hour' and failing_since + interval '1 minute'
 order by at desc limit 20;

-- storage: How much disk does each day take?
select day, sum(rows_estimate) as rows_estimate, pg_size_pretty(sum(total_bytes)) as total,
       pg_size_pretty(sum(index_bytes)) as indexes
  from postrider.storage group by day order by day desc nulls last;

-- policy: What does a response of 503 mean under each retry policy?
select distinct on (policy, endpoint_kind) policy, endpoint_kind, condition, action, min_delay_seconds
  from postrider.retry_policy_cells where condition in ('503', 'other')
 order by policy, endpoint_kind, condition = 'other';

-- handshakes: Which handshakes wait, and for what?
select topic, subscription, endpoint_base_url, state, tries, message, callback_expires_at
  from postrider.handshakes where state in ('pending', 'awaiting') order by created_at;
