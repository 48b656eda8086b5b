-- Fills an empty database with what a week of an ordinary service leaves behind: two deliveries for each event, ten
-- topics of very different sizes, fifty event subscriptions, a tenth of all dead-lettered, a tenth delivered at the
-- second attempt, a twentieth pending, of three event subscriptions. Nothing is random: two runs have the same rows.
CREATE SCHEMA bench;

-- Events are numbered from 0 and come at one rate; those before first have been made already.
CREATE TABLE bench.load (events bigint, began timestamptz, ended timestamptz, pending_from bigint, special bigint,
    first bigint);

CREATE FUNCTION bench.topic_of(n bigint) RETURNS integer LANGUAGE sql IMMUTABLE AS
$$ SELECT width_bucket(((n * 7919) % 1000)::integer, ARRAY [400, 600, 720, 800, 860, 910, 950, 980, 995]) + 1 $$;

CREATE FUNCTION bench.uuid_of(at timestamptz, variant integer, n bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS
$$ SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || lpad(to_hex(variant), 3, '0') || '8'
    || lpad(to_hex(n), 15, '0'))::uuid $$;

-- The first event to be made that is of a day or later.
CREATE FUNCTION bench.first_of(day date) RETURNS bigint LANGUAGE sql STABLE AS
$$ SELECT least(l.events, greatest(l.first,
    ceil(extract(epoch FROM (day::timestamp AT TIME ZONE 'UTC') - l.began)::float8 / extract(epoch
    FROM l.ended - l.began)::float8 * l.events)))::bigint FROM bench.load l $$;

CREATE FUNCTION bench.body_of(n bigint, at timestamptz) RETURNS bytea LANGUAGE sql STABLE AS
$$ SELECT convert_to('{"id":"e-' || n || '","subject":"/things/' || n || '","eventType":"Shop.Changed","eventTime":"'
    || at::text || '","dataVersion":"1","data":{"number":' || n
          || ',"filler":"' || repeat(md5(n::text), 8) || '"}}', 'UTF8') $$;

-- Every delivery of a day's events. fate is a number below 1000 that says how it ends.
CREATE FUNCTION bench.made(day date) RETURNS TABLE (n bigint, id bigint, published_at timestamptz,
    last_moment timestamptz, event_uuid uuid, topic_id bigint, subscription_id bigint, fate bigint, pending boolean)
LANGUAGE sql STABLE AS $$
SELECT n, id, at, ((day + 1)::timestamp AT TIME ZONE 'UTC') - interval '1 millisecond', bench.uuid_of(at, 0, n),
       topic_id, sub, (id * 104729) % 1000, n >= pending_from AND sub IN (1, 6, 11)
  FROM (SELECT n, n * 2 + k + 1 AS id, l.began + (l.ended - l.began) * (n::float8 / l.events) AS at, topic_id::bigint,
      l.pending_from,
               ((topic_id - 1) * 5 + 1 + CASE k WHEN 0 THEN 0 ELSE 1 + n % 4 END)::bigint AS sub
          FROM bench.load l CROSS JOIN generate_series(bench.first_of(day), bench.first_of(day + 1) - 1) AS n
          CROSS JOIN generate_series(0, 1) AS k CROSS JOIN bench.topic_of(n) AS topic_id) d $$;

-- A part is filled before it is attached, which makes its indexes in one go. One that is there gets more.
CREATE PROCEDURE bench.fill(parent text, day date, source text) LANGUAGE plpgsql AS $$
DECLARE part text := format('postrider_internal.%I', parent || '_' || to_char(day, 'YYYYMMDD'));
BEGIN
    IF to_regclass(part) IS NOT NULL THEN
        EXECUTE replace(source, '{part}', part) USING day;
        RETURN;
    END IF;
    EXECUTE format('CREATE TABLE %s (LIKE postrider_internal.%I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING '
        'STORAGE)', part, parent);
    EXECUTE replace(source, '{part}', part) USING day;
    IF parent = 'delivery_history' THEN -- as the service makes it
        EXECUTE format('ALTER TABLE %s ALTER subscription_id SET (n_distinct = 1000)', part);
    END IF;
    EXECUTE format('ALTER TABLE postrider_internal.%I ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)', parent, part,
        day, day + 1);
END $$;

CREATE PROCEDURE bench.fill_events(day date) LANGUAGE sql AS $call$ CALL bench.fill('events', day, $$
INSERT INTO {part} (id, day, topic_id, published_at, event_time, catalog_version, matched, event_id, event_type,
    subject, source, data_version, schema, body)
SELECT bench.uuid_of(at, 0, n), $1, bench.topic_of(n), at, at, 1, 2, CASE n WHEN l.special THEN 'order-42'
    ELSE 'e-' || n END, 'Shop.Changed', '/things/' || n, '', '1', 'EventGridSchema', bench.body_of(n, at)
  FROM bench.load l CROSS JOIN generate_series(bench.first_of($1), bench.first_of($1 + 1) - 1) AS n
 CROSS JOIN LATERAL (SELECT l.began + (l.ended - l.began) * (n::float8 / l.events) AS at OFFSET 0) a
 UNION ALL
SELECT bench.uuid_of(at, 1, n), $1, bench.topic_of(n), at, at, 1, 0, 'u-' || n, 'Shop.Unwanted', '/things/' || n, '',
       '1', 'EventGridSchema', bench.body_of(n, at)
  FROM bench.load l CROSS JOIN generate_series(bench.first_of($1), bench.first_of($1 + 1) - 1, 50) AS n
 CROSS JOIN LATERAL (SELECT l.began + (l.ended - l.began) * (n::float8 / l.events) AS at OFFSET 0) a $$) $call$;

CREATE PROCEDURE bench.fill_history(day date) LANGUAGE sql AS $call$ CALL bench.fill('delivery_history', day, $$
INSERT INTO {part} (id, day, subscription_id, topic_id, event_uuid, event_day, attempts, reruns, last_status,
    batch_id, time_to_live_since, first_attempt_at, last_attempt_at, finished_at, state, reason, last_outcome,
    redelivered_from, dead_letter_id)
SELECT m.id, $1, m.subscription_id, m.topic_id, m.event_uuid, $1, CASE WHEN fate BETWEEN 110 AND 114
    THEN 0 WHEN fate BETWEEN 115 AND 214 THEN 2 ELSE 1 END, (m.id % 100003 = 0)::integer,
       CASE WHEN fate < 100 THEN 400 WHEN fate < 110 THEN 503 WHEN fate >= 115 THEN 200 END,
       (SELECT b.id FROM postrider_internal.batches b WHERE b.id = (m.id - 1) / 10), published_at, published_at,
           ended, ended,
       CASE WHEN fate < 100 THEN 'dead_lettered' WHEN fate < 110 THEN 'dropped' WHEN fate < 115 THEN 'canceled'
           ELSE 'delivered' END,
       CASE WHEN fate < 100 THEN 'UndeliverableDueToHttpBadRequest' WHEN fate < 110 THEN 'TimeToLiveExceeded'
           WHEN fate < 115 THEN 'CanceledByOperator' END,
       CASE WHEN fate < 100 THEN 'BadRequest' WHEN fate < 110 THEN 'Busy' WHEN fate >= 115 THEN 'Delivered' END, NULL,
       CASE WHEN fate < 100 THEN bench.uuid_of(ended, 2, m.id) END
  FROM bench.made($1) m CROSS JOIN LATERAL (SELECT least(last_moment, published_at + CASE WHEN fate BETWEEN 115 AND 214
      THEN interval '30 seconds' ELSE interval '20 milliseconds' END) AS ended) e
 WHERE NOT pending $$) $call$;

CREATE PROCEDURE bench.fill_attempts(day date) LANGUAGE sql AS $call$ CALL bench.fill('delivery_attempts', day, $$
INSERT INTO {part} (day, delivery_id, subscription_id, job_id, number, reruns, due_at, started_at, duration_us,
    first_byte_us, status, outcome, verdict, next_attempt_at, rule, step_ms, floor_ms, jitter_ms, node,
    response_headers, response_excerpt)
SELECT $1, m.id, m.subscription_id, m.id, i, (m.id % 100003 = 0)::integer, started, started, duration, duration,
       a.status, a.outcome, a.verdict, CASE verdict WHEN 'retry' THEN started + interval '30 seconds' END,
       CASE verdict WHEN 'deliver' THEN '200: success' WHEN 'retry'
           THEN '503: at least 30 s; step 1 is 10 s after the failure' WHEN 'dead_letter'
           THEN '400: never retried' ELSE '503: the time to live of 1 h had passed before the attempt ended' END,
       CASE verdict WHEN 'retry' THEN 10000 END, CASE verdict WHEN 'retry' THEN 30000 END, CASE verdict WHEN 'retry'
           THEN 800 END, 'node-' || m.id % 3,
       '\x436f6e74656e742d547970653a20746578742f706c61696e0d0a', CASE verdict WHEN 'deliver' THEN NULL
           ELSE convert_to('{"error":"no more of this today"}', 'UTF8') END
  FROM bench.made($1) m
 CROSS JOIN LATERAL (SELECT CASE WHEN pending THEN CASE subscription_id WHEN 1 THEN (m.id % 20 = 1)::integer WHEN 11
     THEN 1 + m.id % 3 ELSE 0 END
                                 WHEN fate BETWEEN 110 AND 114 THEN 0 WHEN fate BETWEEN 115 AND 214 THEN 2
                                 ELSE 1 END AS attempts) c
 CROSS JOIN LATERAL generate_series(1, attempts) AS i
 CROSS JOIN LATERAL (SELECT least(last_moment,
     published_at + (i - 1) * interval '30 seconds' + interval '5 milliseconds') AS started,
                            CASE WHEN m.id % 97 = 0 THEN 1200000
                                ELSE 3000 + ((m.id * 31337) % 1000) * ((m.id * 31337) % 1000) / 10 END AS duration) s
 CROSS JOIN LATERAL (SELECT * FROM (VALUES (503, 'Busy', 'retry', pending OR fate BETWEEN 115 AND 214 AND i = 1),
     (400, 'BadRequest', 'dead_letter', fate < 100), (503, 'Busy', 'drop', fate < 110), (200, 'Delivered', 'deliver',
     true))
                            AS v(status, outcome, verdict, applies) WHERE applies LIMIT 1) a $$) $call$;

CREATE PROCEDURE bench.fill_dead_letters(day date) LANGUAGE sql AS $$
INSERT INTO postrider_internal.dead_letters (id, dead_lettered_at, delivery_id, subscription_id, topic_id, topic,
    subscription, endpoint_base_url, reason, attempts, last_outcome, last_status, last_response, first_attempt_at,
       last_attempt_at, time_to_live_since, published_at, event_time, event_uuid, event_id, event_type, subject, source,
       data_version, schema, retry_policy, body)
SELECT bench.uuid_of(e.ended, 2, m.id), e.ended, m.id, m.subscription_id, m.topic_id, t.name, s.name,
       s.endpoint_base_url, 'UndeliverableDueToHttpBadRequest', 1, 'BadRequest', 400,
       convert_to('{"error":"no more of this today"}', 'UTF8'),
       published_at, e.ended, published_at, published_at, published_at, m.event_uuid, CASE m.n WHEN l.special
           THEN 'order-42' ELSE 'e-' || m.n END, 'Shop.Changed', '/things/' || m.n, '', '1', 'EventGridSchema',
       'ga-2021', bench.body_of(m.n, published_at)
  FROM bench.load l CROSS JOIN bench.made(day) m
  JOIN postrider_internal.topics t ON t.id = m.topic_id JOIN postrider_internal.event_subscriptions s
      ON s.id = m.subscription_id
 CROSS JOIN LATERAL (SELECT least(last_moment, published_at + interval '20 milliseconds') AS ended) e
 WHERE NOT pending AND fate < 100 $$;

-- What is pending is held by a probation, held by a pause, or has a job for its next attempt.
CREATE PROCEDURE bench.fill_pending(day date) LANGUAGE sql AS $$
INSERT INTO postrider_internal.deliveries (id, subscription_id, topic_id, event_uuid, event_day, attempts, event_bytes,
    last_status, last_outcome, job_id, time_to_live_since, next_attempt_at, first_attempt_at, last_attempt_at, hold)
SELECT m.id, m.subscription_id, m.topic_id, m.event_uuid, day, attempts, 450, CASE WHEN attempts > 0 THEN 503 END,
       CASE WHEN attempts > 0 THEN 'Busy' END, CASE subscription_id WHEN 11 THEN m.id END,
       published_at, CASE subscription_id WHEN 11 THEN now() + interval '4 hours' ELSE published_at END,
       CASE WHEN attempts > 0 THEN published_at END, CASE WHEN attempts > 0 THEN published_at END,
       CASE subscription_id WHEN 1 THEN 'probation' WHEN 6 THEN 'paused' END
  FROM bench.made(day) m CROSS JOIN LATERAL (SELECT CASE subscription_id WHEN 1 THEN (m.id % 20 = 1)::integer WHEN 11
      THEN 1 + m.id % 3 ELSE 0 END AS attempts) c
 WHERE pending;
INSERT INTO postrider_internal.new_jobs
SELECT j.*
  FROM bench.made(day) m, postrider_internal.attempt_job(
       m.id, now() + interval '4 hours', 11, delivery => m.id, number => 2) j
 WHERE m.pending AND m.subscription_id = 11 $$;

-- The counts, from the rows that are there.
CREATE PROCEDURE bench.fill_counts(today date) LANGUAGE sql AS $$
INSERT INTO postrider_internal.backlog_counts AS o SELECT subscription_id, count(*) FROM postrider_internal.deliveries
WHERE event_day = today GROUP BY 1 ORDER BY 1
    ON CONFLICT (subscription_id) DO UPDATE SET deliveries = o.deliveries + excluded.deliveries;
INSERT INTO postrider_internal.rollups (minute, topic_id, subscription_id, kind, detail, count)
SELECT date_trunc('minute', finished_at), topic_id, subscription_id, state, CASE WHEN state = 'delivered'
    AND attempts = 1 THEN 'FirstAttempt' ELSE coalesce(reason, '') END, count(*)
  FROM postrider_internal.delivery_history WHERE day = today GROUP BY 1, 2, 3, 4, 5;
INSERT INTO postrider_internal.rollups (minute, topic_id, subscription_id, kind, detail, count)
SELECT date_trunc('minute', published_at), topic_id, subscription_id, 'matched', '', count(*) FROM bench.made(today)
GROUP BY 1, 2, 3;
INSERT INTO postrider_internal.rollups (minute, topic_id, kind, count)
SELECT date_trunc('minute', published_at), topic_id, 'published', count(*) FROM postrider_internal.events
WHERE day = today GROUP BY 1, 2;
INSERT INTO postrider_internal.rollups (minute, topic_id, subscription_id, kind, detail, count, latency_buckets)
SELECT minute, (subscription_id - 1) / 5 + 1, subscription_id, 'attempt', outcome, sum(n)::bigint, ARRAY [{buckets}]
  FROM (SELECT date_trunc('minute', started_at) AS minute, subscription_id, outcome,
               postrider_internal.latency_bucket(duration_us) AS bucket, count(*) AS n
          FROM postrider_internal.delivery_attempts WHERE day = today GROUP BY 1, 2, 3, 4) taken
 GROUP BY 1, 2, 3, 5;
INSERT INTO postrider_internal.rollup_sums
SELECT CASE WHEN grouping(hour) = 0 THEN 60 WHEN grouping(quarter) = 0 THEN 15 ELSE 1 END, coalesce(hour, quarter,
    minute), coalesce(topic_id, 0), coalesce(subscription_id, 0), kind, detail, sum(count)::bigint,
       CASE WHEN kind = 'attempt' THEN ARRAY [{sums}] END
  FROM (SELECT *, date_bin('15 minutes', minute, 'epoch') AS quarter, date_bin('1 hour', minute, 'epoch') AS hour
      FROM postrider_internal.rollups WHERE (minute AT TIME ZONE 'UTC')::date = today) a
 GROUP BY GROUPING SETS ((hour, topic_id, subscription_id, kind, detail), (quarter, topic_id, kind, detail),
     (quarter, kind, detail), (minute, kind, detail))
HAVING grouping(subscription_id) = 1 OR subscription_id > 0 $$;

-- What there is once: the catalog, holds, nodes, batches, the audit, handshakes.
CREATE PROCEDURE bench.fill_rest(wanted bigint, days integer) LANGUAGE plpgsql AS $$
DECLARE events bigint := wanted / 2; pending_from bigint := wanted / 2 - (wanted * 7 / days / 20) / 0.36 / 2;
BEGIN
    INSERT INTO bench.load SELECT events, date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' -
        (days - 1) * interval '1 day', now(), pending_from,
           (SELECT max(n) FROM generate_series(greatest(0, pending_from - 20000), pending_from - 1) n
               WHERE bench.topic_of(n) = 1 AND ((n * 2 + 1) * 104729) % 1000 < 100), 0;
    INSERT INTO postrider_internal.topics (id, name, kind, input_schema, key1_sealed, key2_sealed, key1_hash, key2_hash)
    SELECT i, (ARRAY ['orders', 'payments', 'users', 'stock', 'carts', 'returns', 'reviews', 'prices', 'shipments',
        'vouchers'])[i], 'basic', 'EventGridSchema', '', '', '', '' FROM generate_series(1, 10) i;
    INSERT INTO postrider_internal.event_subscriptions (id, topic_id, name, settings, endpoint_base_url,
        endpoint_hash, event_delivery_schema, retry_policy)
    SELECT i, (i - 1) / 5 + 1, (ARRAY ['billing', 'shipping', 'mail', 'search', 'warehouse'])[(i - 1) % 5 + 1], '{}',
           'https://example.com/' || i, int8send(i), 'EventGridSchema', 'ga-2021'
    FROM generate_series(1, 50) i;
    INSERT INTO postrider_internal.event_subscription_states (subscription_id, paused_since)
    VALUES (6, now() - interval '1 day');
    INSERT INTO postrider_internal.probations (probation_key, endpoint_base_url, since, until, cause, failures_in_a_row)
    VALUES (int8send(1), 'https://example.com/1', now() - interval '1 day', now() + interval '10 minutes', 'Busy', 20);
    INSERT INTO postrider_internal.nodes (id, host, version) SELECT 'node-' || i, 'host-' || i, '1'
    FROM generate_series(0, 2) i;
    INSERT INTO postrider_internal.batches (id, subscription_id, state, members, delivery_ids, bytes, attempts,
        created_at, finished_at)
    SELECT i, CASE WHEN i % 10 = 0 THEN 1 ELSE 12 END, 'delivered', 10,
           ARRAY (SELECT generate_series(i * 10 + 1, i * 10 + 10)), 4500, 1, at, at
    FROM bench.load l, generate_series(1, wanted / 1000) i,
           LATERAL (SELECT l.began + (l.ended - l.began) * (i * 10 * 50.0::float8 / l.events) AS at) a;
    INSERT INTO postrider_internal.audit (at, actor, action, topic, subscription, details)
    SELECT now() - i * interval '2 minutes', 'admin', 'subscription_replaced', 'orders', 'billing',
           '{"settings": ["filter"]}' FROM generate_series(1, 5000) i;
    INSERT INTO postrider_internal.handshakes (purpose, topic, subscription, settings, secrets_sealed,
        endpoint_base_url, endpoint_hash, schema, code_sealed, code_hash, callback, public_url, state)
    SELECT 'validation', 'orders', 's-' || i, '{}', '', 'https://example.com/' || i, '', 'EventGridSchema', '',
           int4send(i), true, '', CASE WHEN i % 100 = 0 THEN 'awaiting' ELSE 'succeeded' END
      FROM generate_series(1, 1000) i;
    PERFORM setval(pg_get_serial_sequence('postrider_internal.topics', 'id'), 10),
        setval(pg_get_serial_sequence('postrider_internal.event_subscriptions', 'id'), 50);
END $$;

-- Making the rows takes minutes, and questions ask about the last few: what would have come meanwhile is still to be
-- made.
CREATE PROCEDURE bench.go_on(today date) LANGUAGE plpgsql AS $$
BEGIN
    UPDATE bench.load SET first = events, events = events * (extract(epoch FROM until - began) / extract(epoch
        FROM ended - began))::float8, ended = until
      FROM (SELECT least(now(), (today + 1)::timestamp AT TIME ZONE 'UTC') AS until) u;
    PERFORM setval('postrider_internal.deliveries_id_seq', events * 2 + 1),
        setval('postrider_internal.river_job_id_seq', events * 2 + 1) FROM bench.load;
END $$;
