-- Gives the rows of testnode.FillWeek the names and failures of a shop, for the pictures of docs/guides/dashboard.md.
-- Nothing is random.
UPDATE postrider_internal.topics SET name = (ARRAY ['orders', 'invoices', 'customers', 'stock', 'carts', 'returns',
    'reviews', 'prices', 'shipments', 'vouchers'])[id];
UPDATE postrider_internal.event_subscriptions SET endpoint_base_url = 'https://' || name || '.contoso.example/hooks/'
    || (SELECT t.name FROM postrider_internal.topics t WHERE t.id = topic_id),
       retry_policy = (ARRAY ['ga-2021', 'ga-2021', 'ga-2019', 'ga-2021', 'namespace-2023'])[(id - 1) % 5 + 1];
UPDATE postrider_internal.probations SET probation_key = (SELECT (postrider_internal.probation_keys(
    p.settings #>> '{probation,scope}', s.endpoint_hash, s.id))[1] FROM postrider_internal.event_subscriptions s
    JOIN postrider_internal.retry_policies p ON p.name = s.retry_policy WHERE s.id = 1),
       endpoint_base_url = 'https://billing.contoso.example/hooks/orders', since = now() - interval '12 minutes',
       until = now() + interval '4 minutes 12 seconds', cause = 'Busy';
UPDATE postrider_internal.event_subscription_states SET paused_since = now() - interval '38 minutes'
WHERE subscription_id = 6;

CREATE FUNCTION pg_temp.kind(topic bigint, n bigint) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT (ARRAY ['Shop.Order', 'Shop.Invoice', 'Shop.Customer', 'Shop.Stock', 'Shop.Cart', 'Shop.Return',
    'Shop.Review', 'Shop.Price', 'Shop.Shipment', 'Shop.Voucher'])[topic]
       || (ARRAY ['Placed', 'Changed', 'Paid', 'Canceled'])[n % 4 + 1] $$;
CREATE FUNCTION pg_temp.subject(topic bigint, n bigint) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT '/' || (ARRAY ['orders', 'invoices', 'customers', 'stock', 'carts', 'returns', 'reviews', 'prices',
    'shipments', 'vouchers'])[topic] || '/' || 480000 + n $$;
CREATE FUNCTION pg_temp.body(topic bigint, n bigint, at timestamptz) RETURNS bytea LANGUAGE sql STABLE AS $$
SELECT convert_to(format('{"id":"%s","subject":"%s","eventType":"%s","eventTime":"%s","dataVersion":"2",'
    '"data":{"number":%s,"customer":"C-%s","total":%s.90,"currency":"EUR","lines":[{"sku":"KX-%s","quantity":%s}]}}',
       'e-' || n, pg_temp.subject(topic, n), pg_temp.kind(topic, n), to_char(at AT TIME ZONE 'UTC',
           'YYYY-MM-DD"T"HH24:MI:SS"Z"'), 480000 + n, 1000 + n % 8999, 12 + n % 380, 100 + n % 899, 1 + n % 4),
       'UTF8') $$;

UPDATE postrider_internal.events e SET event_type = pg_temp.kind(topic_id, n), subject = pg_temp.subject(topic_id, n),
    body = pg_temp.body(topic_id, n, published_at), data_version = '2'
  FROM (SELECT id AS key, ltrim(split_part(subject, '/', 3), '0')::bigint AS n FROM postrider_internal.events
      WHERE day >= (now() AT TIME ZONE 'UTC')::date - 1 AND subject LIKE '/things/_%' AND subject <> '/things/0') k
  WHERE e.id = k.key AND e.day >= (now() AT TIME ZONE 'UTC')::date - 1;

-- Dead letters with several reasons.
UPDATE postrider_internal.dead_letters l
   SET reason = v.reason, last_outcome = v.outcome, last_status = v.status, attempts = v.attempts, last_error = v.error,
       last_response = convert_to(coalesce(v.response, ''), 'UTF8'),
       topic = t.name, event_type = pg_temp.kind(l.topic_id, k.n), subject = pg_temp.subject(l.topic_id, k.n),
       body = pg_temp.body(l.topic_id, k.n, l.published_at),
       endpoint_base_url = s.endpoint_base_url, redelivered_at = CASE WHEN k.n % 23 = 0
           THEN dead_lettered_at + interval '50 minutes' END
  FROM (SELECT id AS key, delivery_id / 2 AS n, CASE WHEN delivery_id % 10 < 4 THEN 1 WHEN delivery_id % 10 < 7
      THEN 2 WHEN delivery_id % 10 < 9 THEN 3 ELSE 4 END AS which FROM postrider_internal.dead_letters) k
  JOIN (VALUES (1, 'UndeliverableDueToHttpBadRequest', 'BadRequest', 400, 1, NULL,
      '{"error":"currency EUR is not enabled for this account"}'),
               (2, 'MaxDeliveryAttemptsExceeded', 'Busy', 503, 30, NULL, '<h1>503 Service Unavailable</h1>'),
               (3, 'TimeToLiveExceeded', 'TimedOut', NULL, 18, 'no response within 30 s', NULL),
               (4, 'UndeliverableDueToClientError', 'NotFound', 404, 2, NULL, '{"message":"no such hook"}')) AS v(which,
               reason, outcome, status, attempts, error, response) ON v.which = k.which,
       postrider_internal.topics t, postrider_internal.event_subscriptions s
 WHERE l.id = k.key AND t.id = l.topic_id AND s.id = l.subscription_id;
-- The counters agree, in both tables.
CREATE FUNCTION pg_temp.other(detail text, begins timestamptz, subscription bigint) RETURNS text LANGUAGE sql
    IMMUTABLE AS $$
SELECT CASE (extract(epoch FROM begins)::bigint / 3600 + subscription * 7) % 5
       WHEN 0 THEN CASE detail WHEN 'BadRequest' THEN 'TimedOut' WHEN 'UndeliverableDueToHttpBadRequest'
           THEN 'TimeToLiveExceeded' END
       WHEN 1 THEN CASE detail WHEN 'BadRequest' THEN 'NotFound' WHEN 'UndeliverableDueToHttpBadRequest'
           THEN 'UndeliverableDueToClientError' END
       WHEN 2 THEN CASE detail WHEN 'UndeliverableDueToHttpBadRequest' THEN 'MaxDeliveryAttemptsExceeded' END END $$;
UPDATE postrider_internal.rollups r SET detail = pg_temp.other(detail, minute, subscription_id)
WHERE pg_temp.other(detail, minute, subscription_id) IS NOT NULL;
UPDATE postrider_internal.rollup_sums r SET detail = pg_temp.other(detail, begins, subscription_id)
WHERE pg_temp.other(detail, begins, subscription_id) IS NOT NULL;
-- Fewer events at night. An hour ago an endpoint began to fail.
UPDATE postrider_internal.rollups SET count = greatest(1,
    (count * (1.6 + sin(extract(epoch FROM minute) / 86400 * 2 * pi() - 2) + 0.25 * sin(extract(epoch
    FROM minute) / 611)))::bigint);
UPDATE postrider_internal.rollup_sums
SET count = greatest(1, (count * (1.6 + sin(extract(epoch FROM begins) / 86400 * 2 * pi() - 2) + 0.25 *
    sin(extract(epoch FROM begins) / 611)))::bigint);
UPDATE postrider_internal.rollups SET count = count * 9 WHERE subscription_id IN (1, 11) AND detail = 'Busy'
    AND minute > now() - interval '25 minutes';
