-- Data for the questions of docs/questions.sql: few rows, each there for a question. Ids of deliveries are 101 and
-- up where they are pending.
DO $$
DECLARE
    orders  bigint := (SELECT id FROM postrider_internal.topics WHERE name = 'orders');
    billing bigint := (SELECT id FROM postrider_internal.event_subscriptions WHERE name = 'billing');
    mail    bigint := (SELECT id FROM postrider_internal.event_subscriptions WHERE name = 'mail');
    today   date := (now() AT TIME ZONE 'UTC')::date;
    -- The days of what happened so many minutes ago: yesterday, shortly after midnight.
    ago20   date := ((now() - interval '20 minutes') AT TIME ZONE 'UTC')::date;
    ago40   date := ((now() - interval '40 minutes') AT TIME ZONE 'UTC')::date;
    ago50   date := ((now() - interval '50 minutes') AT TIME ZONE 'UTC')::date;
    parent  text;
    minute  timestamptz := date_trunc('minute', now());
BEGIN
    IF ago50 < today THEN
        FOREACH parent IN ARRAY ARRAY ['events', 'delivery_history', 'delivery_attempts'] LOOP
            EXECUTE format('CREATE TABLE postrider_internal.%I PARTITION OF postrider_internal.%I FOR VALUES FROM (%L) '
                'TO (%L)',
                           parent || to_char(ago50, '_YYYYMMDD'), parent, ago50, today);
        END LOOP;
    END IF;
    INSERT INTO postrider_internal.events (id, day, topic_id, published_at, matched, event_id, event_type, subject,
        source, data_version, schema, body)
    SELECT i::text::uuid, ((now() - ago) AT TIME ZONE 'UTC')::date, orders, now() - ago, matched, event_id,
           'Shop.OrderPlaced', '/' || event_id, '', '', 'EventGridSchema', convert_to('{"data": {"text": "' || event_id
        || '"}}', 'UTF8')
      FROM (VALUES ('00000000-0000-7000-8000-000000000001', interval '50 minutes', 2, 'order-42'),
          ('00000000-0000-7000-8000-000000000002', '40 minutes', 2, 'order-43'),
                   ('00000000-0000-7000-8000-000000000003', '5 minutes', 0, 'unmatched-1'),
                   ('00000000-0000-7000-8000-000000000004', '1 minute', 0, 'unmatched-2')) AS e(i, ago, matched,
                       event_id);

    INSERT INTO postrider_internal.batches (id, subscription_id, state, job_id, members, delivery_ids,
        bytes, attempts, next_attempt_at) VALUES
        (6, billing, 'delivered', NULL, 1, '{1}', 10, 1, NULL), (7, billing, 'pending', 9003, 1, '{105, 106}', 10, 1,
            now() + interval '1 hour'), (8, mail, 'delivered', NULL, 1, '{2}', 10, 1, NULL);
    INSERT INTO postrider_internal.deliveries (id, subscription_id, topic_id, event_uuid, event_day, event_bytes,
        attempts, last_status, last_outcome, time_to_live_since, next_attempt_at, job_id, hold, batch_id,
            redelivered_from)
    VALUES
        (101, billing, orders, '00000000-0000-7000-8000-000000000002', ago40, 10, 1, 503, 'Busy',
            now() - interval '40 minutes', now() + interval '1 hour', 9001, NULL, NULL, NULL),
        (102, billing, orders, '00000000-0000-7000-8000-000000000002', ago40, 10, 0, NULL, NULL,
            now() - interval '30 minutes', now() - interval '30 minutes', NULL, 'probation', NULL, NULL),
        (103, mail, orders, '00000000-0000-7000-8000-000000000002', ago40, 10, 0, NULL, NULL,
            now() - interval '2 hours', now() - interval '2 hours', NULL, 'paused', NULL, NULL),
        (104, billing, orders, '00000000-0000-7000-8000-000000000001', ago50, 10, 0, NULL, NULL,
            now() - interval '1 minute', now() - interval '1 minute', 9002, NULL, NULL,
            '00000000-0000-7000-8000-00000000000d'),
        (105, billing, orders, '00000000-0000-7000-8000-000000000002', ago40, 10, 1, 503, 'Busy',
            now() - interval '20 minutes', now() - interval '20 minutes', NULL, NULL, 7, NULL),
        (106, billing, orders, '00000000-0000-7000-8000-000000000002', ago40, 10, 1, 503, 'Busy',
            now() - interval '20 minutes', now() - interval '20 minutes', NULL, NULL, NULL, NULL);
    INSERT INTO postrider_internal.left_members (batch_id, delivery_id, left_at, left_after, left_reason)
    VALUES (7, 106, now(), 1, 'OwnTime');
    INSERT INTO postrider_internal.backlog_counts VALUES (billing, 4), (mail, 1);
    -- One more was published since they were added up, and another has ended: both are still among the deltas.
    INSERT INTO postrider_internal.rollup_deltas
    VALUES (ARRAY [ROW (minute, orders, billing, 'matched', '', NULL, 2, NULL)::postrider_internal.rollup_entry,
        ROW (minute, orders, billing, 'dead_lettered', 'TimeToLiveExceeded', NULL, 1,
        NULL)::postrider_internal.rollup_entry]);

    INSERT INTO postrider_internal.delivery_history (id, day, subscription_id, topic_id, event_uuid, event_day,
        attempts, reruns, last_status, batch_id, time_to_live_since, finished_at, state, reason, last_outcome,
            dead_letter_id) VALUES
        (1, ago20, billing, orders, '00000000-0000-7000-8000-000000000001', ago50, 2, 0, 503, 6,
            now() - interval '50 minutes', now() - interval '20 minutes', 'dead_lettered',
            'MaxDeliveryAttemptsExceeded', 'Busy', '00000000-0000-7000-8000-00000000000d'),
        (2, ago50, mail, orders, '00000000-0000-7000-8000-000000000001', ago50, 1, 0, 200, 8,
            now() - interval '50 minutes', now() - interval '50 minutes', 'delivered', NULL, 'Delivered', NULL);
    INSERT INTO postrider_internal.delivery_attempts (day, delivery_id, batch_id, subscription_id, job_id, number,
        reruns, started_at, duration_us, status, outcome, verdict, rule, node, response_excerpt) VALUES
        (ago50, 1, NULL, billing, 1, 1, 0, now() - interval '50 minutes', 4000, 503, 'Busy', 'retry', '503: step 1',
            'node-a', '\x62757379'),
        (ago20, 1, NULL, billing, 1, 2, 0, now() - interval '20 minutes', 4000, 503, 'Busy', 'dead_letter',
            '503: attempt 2 of 2 failed', 'node-a', NULL),
        (ago50, 2, NULL, mail, 2, 1, 0, now() - interval '50 minutes', 4000, 200, 'Delivered', 'deliver',
            '200: success', 'node-a', NULL),
        (((now() - interval '2 minutes') AT TIME ZONE 'UTC')::date, 101, NULL, billing, 3, 1, 1,
            now() - interval '2 minutes', 10000, 503, 'Busy', 'retry', '503: step 1', 'node-b', NULL),
        (((now() - interval '1 minute') AT TIME ZONE 'UTC')::date, 3, NULL, mail, 4, 1, 0, now() - interval '1 minute',
            20000, 200, 'Delivered', 'deliver', '200: success', 'node-b', NULL);
    INSERT INTO postrider_internal.dead_letters (id, dead_lettered_at, delivery_id, subscription_id, topic_id, topic,
        subscription, endpoint_base_url, reason, attempts, last_outcome, last_status, time_to_live_since, published_at,
           event_uuid, event_id, event_type, subject, source, data_version, schema, retry_policy, redelivered_at, body)
           VALUES
        ('00000000-0000-7000-8000-00000000000d', now() - interval '20 minutes', 1, billing, orders, 'orders', 'billing',
            '', 'MaxDeliveryAttemptsExceeded', 2, 'Busy', 503, now(), now(), '00000000-0000-7000-8000-000000000001',
            'order-42', '', '', '', '', '', '', now(), '{}'),
        ('00000000-0000-7000-8000-00000000000e', now() - interval '2 hours', 7, billing, orders, 'orders', 'billing',
            '', 'TimeToLiveExceeded', 2, 'Busy', 503, now(), now(), '00000000-0000-7000-8000-00000000000e', 'order-1',
            '', '', '', '', '', '', NULL, '{}');

    -- Failures began ten minutes ago: half an hour ago one of eleven requests failed, which is ordinary.
    INSERT INTO postrider_internal.rollups (minute, topic_id, subscription_id, kind, detail, count, latency_buckets)
    VALUES
        (minute - interval '30 minutes', orders, billing, 'attempt', 'Delivered', 10, '{10,0,0,0,0,0,0,0,0,0,0,0,0,0}'),
        (minute - interval '30 minutes', orders, billing, 'attempt', 'Busy', 1, '{1,0,0,0,0,0,0,0,0,0,0,0,0,0}'),
        (minute - interval '10 minutes', orders, billing, 'attempt', 'Busy', 3, '{0,0,0,0,0,0,3,0,0,0,0,0,0,0}'),
        (minute - interval '9 minutes', orders, billing, 'attempt', 'TimedOut', 2, '{0,0,0,0,0,0,0,0,0,0,0,2,0,0}'),
        (minute - interval '9 minutes', orders, mail, 'attempt', 'Delivered', 20, '{19,0,0,0,0,1,0,0,0,0,0,0,0,0}'),
        (minute - interval '9 minutes', orders, mail, 'delivered', 'FirstAttempt', 3, NULL),
        (minute - interval '9 minutes', orders, mail, 'delivered', '', 1, NULL),
        (minute - interval '2 hours', orders, mail, 'dropped', 'TimeToLiveExceeded', 9, NULL),
        (minute - interval '1 minute', orders, 0, 'published', '', 5, NULL);
    INSERT INTO postrider_internal.audit (at, actor, action, topic, subscription) VALUES
        (minute - interval '3 hours', 'admin', 'topic_created', 'orders', NULL), (minute - interval '25 minutes', 'cli',
            'subscription_replaced', 'orders', 'billing'), (now(), 'admin', 'subscription_paused', 'orders', 'mail');
    UPDATE postrider_internal.event_subscription_states SET paused_since = now() - interval '3 hours'
    WHERE subscription_id = mail;
    INSERT INTO postrider_internal.probations (probation_key, endpoint_base_url, since, until, cause)
    SELECT endpoint_hash, endpoint_base_url, now() - interval '1 hour', now() + interval '10 minutes', 'Busy'
    FROM postrider_internal.event_subscriptions WHERE id = billing;
    INSERT INTO postrider_internal.nodes (id, host, version) VALUES ('node-b', 'b', '1'), ('node-c', 'c', '1');
    INSERT INTO postrider_internal.handshakes (purpose, topic, subscription, settings, secrets_sealed,
        endpoint_base_url, endpoint_hash, schema, code_sealed, code_hash, callback, public_url, state,
        message) VALUES
        ('validation', 'orders', 'new', '{}', '', 'https://example.com/new', '', 'EventGridSchema', '', 'a', true, '',
            'awaiting', 'open it to confirm'),
        ('validation', 'orders', 'old', '{}', '', 'https://example.com/old', '', 'EventGridSchema', '', 'b', true, '',
            'succeeded', 'done');
END $$
