-- +goose Up

-- Events for operators are published to topic postrider.system as CloudEvents, in two steps. A notice is stored in the
-- transaction that it reports: one row for each group of deliveries of a flush, whatever their number. Once a second
-- one node turns the notices into events (function publish_notices): one for each fact while they are few, else sums.
-- So a million dead letters cause some hundred events a second for the subscribers, and one small row for each flush.
--
-- Deliveries of postrider.system itself cause no notice: a failing endpoint would receive notices of its own failures.
CREATE TABLE postrider_internal.notices (
    id              uuid PRIMARY KEY DEFAULT postrider_internal.new_uuid(),
    at              timestamptz NOT NULL DEFAULT now(),
    type            text NOT NULL CHECK (type IN ('postrider.deadLetter.created',
        'postrider.deadLetter.exportAbandoned',
        'postrider.delivery.dropped',
        'postrider.problem.started', 'postrider.problem.ended',
                        'postrider.probation.started', 'postrider.probation.ended', 'postrider.subscription.expired')),
    topic_id        bigint,
    subscription_id bigint,
    -- Instead of both: the key of what is in probation. Its event subscriptions are looked up when the event is
    -- created.
    probation_key        bytea,
    reason          text,
    count           integer NOT NULL DEFAULT 1,
    -- The first 20 of count: at most 20 become single events.
    deliveries      bigint[],
    dead_letters    uuid[],
    details         jsonb NOT NULL DEFAULT '{}'
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- When notices were last turned into events. The node that has locked the row does so, at most once a second.
CREATE TABLE postrider_internal.notice_pass (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    noticed_at timestamptz NOT NULL DEFAULT '-infinity'
);
INSERT INTO postrider_internal.notice_pass DEFAULT VALUES;

-- +goose StatementBegin
CREATE FUNCTION postrider_internal.system_topic() RETURNS bigint LANGUAGE sql STABLE BEGIN ATOMIC
SELECT id FROM postrider_internal.topics WHERE name = 'postrider.system' AND deleted_at IS NULL;
END;

-- Since when postrider.system has an event subscription; NULL = it has none. It is no join: its callers may have
-- disabled nested loops, and a hash join would read all event subscriptions (10,000: 4.7 ms instead of 0.1).
CREATE FUNCTION postrider_internal.notices_since() RETURNS timestamptz LANGUAGE sql STABLE BEGIN ATOMIC
SELECT min(s.created_at) FROM postrider_internal.event_subscriptions s
 WHERE s.topic_id = (SELECT postrider_internal.system_topic()) AND s.deleted_at IS NULL;
END;

-- Stores notices of those deliveries that the calling transaction has dead-lettered or dropped. It is called after
-- their history was written. The day is part of the statement's text: a kept plan would lock every day's partition. The
-- subquery is evaluated once: the function alone, for each delivery, took 75 ms of 5,000.
CREATE FUNCTION postrider_internal.note_ends(deliveries bigint[]) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF postrider_internal.notices_since() IS NULL THEN
        RETURN;
    END IF;
    EXECUTE format($note$
        INSERT INTO postrider_internal.notices (type, topic_id, subscription_id, reason, count, deliveries,
            dead_letters)
        SELECT CASE h.state WHEN 'dropped' THEN 'postrider.delivery.dropped' ELSE 'postrider.deadLetter.created' END,
               h.topic_id, h.subscription_id, h.reason, count(*),
               (array_agg(h.id ORDER BY h.id))[:20], (array_agg(h.dead_letter_id ORDER BY h.id))[:20]
          FROM postrider_internal.delivery_history h
         WHERE h.day = %L AND h.id = ANY ($1) AND h.finished_at = now() AND h.state IN ('dead_lettered', 'dropped')
           AND h.topic_id <> (SELECT postrider_internal.system_topic())
         GROUP BY h.state, h.topic_id, h.subscription_id, h.reason$note$, (now() AT TIME ZONE 'UTC')::date)
         USING note_ends.deliveries;
END $$;

-- Stores notices of dead letters whose export was abandoned, in the transaction that marks them so. details are members
-- of the event's data: the result of the last try, never a credential of the location. Above 4 KiB they are left out.
CREATE FUNCTION postrider_internal.note_exports_abandoned(dead_letters uuid[], reason text, details jsonb DEFAULT '{}')
RETURNS void LANGUAGE sql BEGIN ATOMIC
INSERT INTO postrider_internal.notices (type, topic_id, subscription_id, reason, count, deliveries, dead_letters,
    details)
SELECT 'postrider.deadLetter.exportAbandoned', l.topic_id, l.subscription_id, left(note_exports_abandoned.reason, 256),
       count(*),
       (array_agg(l.delivery_id ORDER BY l.id))[:20], (array_agg(l.id ORDER BY l.id))[:20],
       CASE WHEN octet_length(note_exports_abandoned.details::text) <= 4096 THEN note_exports_abandoned.details
           ELSE '{}' END
  FROM postrider_internal.dead_letters l
 WHERE l.id = ANY (note_exports_abandoned.dead_letters) AND l.topic_id <> postrider_internal.system_topic()
   AND postrider_internal.notices_since() IS NOT NULL
 GROUP BY l.topic_id, l.subscription_id;
END;

-- Stores a notice that an event subscription has reached its expirationTimeUtc and is being deleted.
CREATE FUNCTION postrider_internal.note_expired(subscription_id bigint) RETURNS void LANGUAGE sql BEGIN ATOMIC
INSERT INTO postrider_internal.notices (type, topic_id, subscription_id, details)
SELECT 'postrider.subscription.expired', s.topic_id, s.id, jsonb_build_object('endpointBaseUrl', s.endpoint_base_url,
    'expirationTimeUtc', postrider_internal.json_time(s.expiration_time_utc))
  FROM postrider_internal.event_subscriptions s WHERE s.id = note_expired.subscription_id
      AND postrider_internal.notices_since() IS NOT NULL;
END;

-- What a probation holds, and its id: beginning and end of the same one have it, whatever event subscriptions the
-- endpoint has then. Two may begin at the same time for one URL.
CREATE FUNCTION postrider_internal.probation_details(p postrider_internal.probations) RETURNS jsonb
LANGUAGE sql STABLE
RETURN jsonb_build_object('scope',
           CASE octet_length(p.probation_key) WHEN 8 THEN 'event_subscription' ELSE 'endpoint' END,
           'probationId', overlay(overlay(left(encode(sha256(p.probation_key
               || convert_to(postrider_internal.json_time(p.since), 'UTF8')), 'hex'), 32)
               PLACING '8' FROM 13) PLACING '8' FROM 17)::uuid,
           'endpointBaseUrl', p.endpoint_base_url, 'since', postrider_internal.json_time(p.since));

-- A probation ends with a probe's success, a late one, a release, or the deletion of its last event subscription.
CREATE FUNCTION postrider_internal.note_probation() RETURNS trigger LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF OLD.since IS NOT NULL AND OLD.notified THEN
        INSERT INTO postrider_internal.notices (type, probation_key, reason, details)
        VALUES ('postrider.probation.ended', OLD.probation_key, OLD.cause,
            postrider_internal.probation_details(OLD));
    END IF;
    IF TG_OP = 'UPDATE' AND NEW.since IS NOT NULL AND NEW.notified THEN
        INSERT INTO postrider_internal.notices (type, probation_key, reason, details)
        VALUES ('postrider.probation.started', NEW.probation_key, NEW.cause,
            postrider_internal.probation_details(NEW)
                || jsonb_build_object('until', postrider_internal.json_time(NEW.until)));
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER note_probation AFTER UPDATE ON postrider_internal.probations FOR EACH ROW
    WHEN (OLD.since IS DISTINCT FROM NEW.since
        AND (OLD.notified OR NEW.notified)) EXECUTE FUNCTION postrider_internal.note_probation();
CREATE TRIGGER note_probation_removed AFTER DELETE ON postrider_internal.probations FOR EACH ROW
    WHEN (OLD.since IS NOT NULL AND OLD.notified) EXECUTE FUNCTION postrider_internal.note_probation();

-- +goose StatementBegin
-- The data of the n-th fact of a notice.
CREATE FUNCTION postrider_internal.notice_data(n postrider_internal.notices, place integer) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    data jsonb := jsonb_build_object('count', 1, 'reason', n.reason) || n.details;
    found jsonb;
BEGIN
    IF n.type LIKE 'postrider.deadLetter.%' THEN
        SELECT jsonb_build_object('eventId', l.event_id, 'eventType', l.event_type, 'systemId', l.event_uuid,
            'attempts', l.attempts, 'lastOutcome', l.last_outcome, 'lastStatus', l.last_status,
                   'endpointBaseUrl', l.endpoint_base_url, 'retryPolicy', l.retry_policy, 'publishedAt',
                   postrider_internal.json_time(l.published_at),
                   'firstAttemptAt', postrider_internal.json_time(l.first_attempt_at), 'lastAttemptAt',
                   postrider_internal.json_time(l.last_attempt_at),
                   'deadLetteredAt', postrider_internal.json_time(l.dead_lettered_at))
          INTO found FROM postrider_internal.dead_letters l WHERE l.id = n.dead_letters[place];
        data := data || jsonb_build_object('deadLetterId', n.dead_letters[place], 'deliveryId', n.deliveries[place]);
    ELSIF n.type = 'postrider.delivery.dropped' THEN
        SELECT jsonb_build_object('eventId', e.event_id, 'eventType', e.event_type, 'systemId', h.event_uuid,
            'attempts', h.attempts, 'lastOutcome', h.last_outcome, 'lastStatus', h.last_status,
                   'endpointBaseUrl', s.endpoint_base_url, 'retryPolicy', s.retry_policy, 'publishedAt',
                   postrider_internal.json_time(e.published_at),
                   'firstAttemptAt', postrider_internal.json_time(h.first_attempt_at), 'lastAttemptAt',
                   postrider_internal.json_time(h.last_attempt_at),
                   'droppedAt', postrider_internal.json_time(h.finished_at))
          INTO found FROM postrider_internal.delivery_history h
          LEFT JOIN postrider_internal.event_subscriptions s ON s.id = h.subscription_id
          LEFT JOIN postrider_internal.events e ON e.id = h.event_uuid AND e.day = h.event_day
         WHERE h.day = (n.at AT TIME ZONE 'UTC')::date AND h.id = n.deliveries[place];
        data := data || jsonb_build_object('deliveryId', n.deliveries[place]);
    END IF;
    RETURN jsonb_strip_nulls(data || coalesce(found, '{}'));
END $$;

-- The event id of a fact: the same however often the event is delivered; for a dead letter its own id, for a problem
-- its id and when its series of failures began.
CREATE FUNCTION postrider_internal.notice_event_id(n postrider_internal.notices, place integer) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN CASE n.type WHEN 'postrider.deadLetter.created' THEN n.dead_letters[place]::text
    WHEN 'postrider.deadLetter.exportAbandoned' THEN n.dead_letters[place] || '/exportAbandoned'
                   WHEN 'postrider.delivery.dropped' THEN n.id || '/' || n.deliveries[place]
    WHEN 'postrider.problem.started' THEN (n.details ->> 'problemId') || '/' || (n.details ->> 'since')
    WHEN 'postrider.problem.ended' THEN (n.details ->> 'problemId') || '/' || (n.details ->> 'since')
        || '/ended'
    ELSE n.id::text END;

-- Turns the notices into events and deletes them, in one transaction. Returns the number of events. Up to 20 of one
-- type and event subscription become single events, more become a sum. If a type still has more than 100 events, it is
-- summed by topic, and if necessary over all topics: at most 800 events a second; 100 take 20 ms. No text is longer
-- than the limit of events: one rejected event would block all others.
CREATE FUNCTION postrider_internal.publish_notices() RETURNS integer LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    since timestamptz := postrider_internal.notices_since();
    published jsonb;
BEGIN
    PERFORM FROM postrider_internal.notice_pass WHERE noticed_at < clock_timestamp() - interval '0.9 seconds'
    FOR UPDATE SKIP LOCKED;
    IF NOT FOUND OR NOT EXISTS (SELECT FROM postrider_internal.notices) THEN
        RETURN 0;
    END IF;
    UPDATE postrider_internal.notice_pass SET noticed_at = clock_timestamp();
    WITH taken AS (
        DELETE FROM postrider_internal.notices n WHERE n.id = ANY (ARRAY (SELECT id FROM postrider_internal.notices
            ORDER BY id LIMIT 50000)) RETURNING n AS notice, n.*
    ), in_probation AS MATERIALIZED (
        SELECT t.id, CASE WHEN min(s.topic_id) = max(s.topic_id) THEN min(s.topic_id) END AS topic_id,
               CASE WHEN count(*) = 1 THEN min(s.id) END AS subscription_id, count(*) AS count,
               to_jsonb((array_agg('/topics/' || o.name || '/subscriptions/' || s.name ORDER BY o.name, s.name))[:20])
                   AS subscriptions
          FROM taken t
          JOIN (SELECT s.id, s.name, s.topic_id, unnest(postrider_internal.probation_keys(
                       r.settings #>> '{probation,scope}', s.endpoint_hash, s.id)) AS probation_key
                  FROM postrider_internal.event_subscriptions s JOIN postrider_internal.retry_policies r
                      ON r.name = s.retry_policy
                 WHERE s.deleted_at IS NULL AND s.topic_id <> postrider_internal.system_topic()) s
                     ON s.probation_key = t.probation_key
          JOIN postrider_internal.topics o ON o.id = s.topic_id
         GROUP BY t.id
    ), placed AS MATERIALIZED (
        SELECT t.notice, t.id, t.at, t.type, t.reason, t.count, coalesce(t.topic_id, r.topic_id) AS topic_id,
               coalesce(t.subscription_id, r.subscription_id) AS subscription_id,
               CASE WHEN t.probation_key IS NOT NULL THEN jsonb_build_object('subscriptions', coalesce(r.subscriptions,
                   '[]'), 'subscriptionCount', coalesce(r.count, 0)) ELSE '{}' END AS more
          FROM taken t LEFT JOIN in_probation r ON r.id = t.id WHERE t.at >= since
    ), grouped AS MATERIALIZED (
        SELECT *, sum(count) OVER (PARTITION BY type, topic_id, subscription_id) AS together FROM placed
    ), types AS (
        SELECT type, sum(CASE WHEN together <= 20 THEN together ELSE 1 END) > 100 AS many,
               count(DISTINCT topic_id) > 100 AS many_topics
          FROM (SELECT DISTINCT type, topic_id, subscription_id, together FROM grouped) g GROUP BY type
    ), leveled AS MATERIALIZED (
        SELECT g.*, NOT t.many AND g.together <= 20 AS alone, CASE WHEN NOT t.many
            THEN g.subscription_id END AS of_subscription, CASE WHEN NOT t.many OR NOT t.many_topics
            THEN g.topic_id END AS of_topic
          FROM grouped g JOIN types t ON t.type = g.type
    ), reasons AS (
        SELECT type, of_topic, of_subscription, reason, sum(count) AS count, min(at) AS first_at, max(at) AS last_at,
               (array_agg(id ORDER BY id))[1] AS id,
               row_number() OVER (PARTITION BY type, of_topic, of_subscription ORDER BY sum(count) DESC,
                   reason) AS place
          FROM leveled WHERE NOT alone GROUP BY type, of_topic, of_subscription, reason
    ), facts AS (
        SELECT type, of_topic, of_subscription, postrider_internal.notice_event_id(notice, place) AS id, at,
               postrider_internal.notice_data(notice, place) || more AS data
          FROM leveled CROSS JOIN generate_series(1, count) AS place WHERE alone
         UNION ALL
        SELECT type, of_topic, of_subscription, (array_agg(id ORDER BY id))[1]::text, max(last_at),
               jsonb_strip_nulls(jsonb_build_object('count', sum(count), 'summed', true,
               'reasons', jsonb_object_agg(reason, count) FILTER (WHERE reason IS NOT NULL AND place <= 20), 'firstAt',
               postrider_internal.json_time(min(first_at)), 'lastAt', postrider_internal.json_time(max(last_at))))
          FROM reasons GROUP BY type, of_topic, of_subscription
    )
    SELECT jsonb_agg(jsonb_build_object('specversion', '1.0', 'id', f.id, 'type', f.type, 'source',
        concat('/topics', '/' || t.name), 'time', postrider_internal.json_time(f.at),
               'subject', concat('/topics', '/' || t.name, '/subscriptions/' || s.name), 'datacontenttype',
               'application/json',
               'data', jsonb_strip_nulls(jsonb_build_object('topic', t.name, 'subscription', s.name, 'description',
                   s.settings ->> 'description')) || f.data)
               ORDER BY f.at, f.id)
      INTO published
      FROM facts f LEFT JOIN postrider_internal.topics t ON t.id = f.of_topic
      LEFT JOIN postrider_internal.event_subscriptions s ON s.id = f.of_subscription;
    IF published IS NOT NULL THEN
        PERFORM postrider_internal.accept_events('postrider.system', published, false, NULL);
    END IF;
    RETURN coalesce(jsonb_array_length(published), 0);
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION postrider_internal.publish_notices, postrider_internal.notice_event_id, postrider_internal.notice_data;
DROP TRIGGER note_probation_removed ON postrider_internal.probations;
DROP TRIGGER note_probation ON postrider_internal.probations;
DROP FUNCTION postrider_internal.note_expired, postrider_internal.note_exports_abandoned,
    postrider_internal.note_ends, postrider_internal.notices_since, postrider_internal.system_topic;
DROP TABLE postrider_internal.notice_pass, postrider_internal.notices;
DROP FUNCTION postrider_internal.note_probation, postrider_internal.probation_details;
