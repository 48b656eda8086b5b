-- +goose Up
-- The functions that operators call for one delivery, event subscription or event. REST API, CLI and dashboard call the
-- functions of the same names in postrider_internal, which also take the actor.

-- +goose StatementBegin
CREATE FUNCTION postrider.cancel(delivery_id bigint) RETURNS text LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp RETURN postrider_internal.cancel(delivery_id, NULL, NULL);

CREATE FUNCTION postrider.retry_now(delivery_id bigint) RETURNS void LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp RETURN postrider_internal.retry_now(delivery_id, NULL, NULL);

CREATE FUNCTION postrider.dead_letter_now(delivery_id bigint) RETURNS uuid LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp RETURN postrider_internal.dead_letter_now(delivery_id, NULL, NULL);

CREATE FUNCTION postrider.pause(topic text, subscription text, stop_time_to_live boolean DEFAULT NULL) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN postrider_internal.pause(topic, subscription, stop_time_to_live, NULL, NULL);

CREATE FUNCTION postrider.resume(topic text, subscription text) RETURNS void LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp RETURN postrider_internal.resume(topic, subscription, NULL, NULL);

CREATE FUNCTION postrider.release(topic text, subscription text) RETURNS void LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp RETURN postrider_internal.release(topic, subscription, NULL, NULL);

CREATE FUNCTION postrider.erase_event(system_id uuid, day date DEFAULT NULL) RETURNS bigint LANGUAGE sql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN postrider_internal.erase_event(system_id, day, NULL, NULL);
-- +goose StatementEnd

REVOKE EXECUTE ON FUNCTION postrider.cancel(bigint), postrider.retry_now(bigint), postrider.dead_letter_now(bigint),
    postrider.pause(text, text, boolean), postrider.resume(text, text), postrider.release(text, text),
    postrider.erase_event(uuid, date) FROM PUBLIC;
COMMENT ON FUNCTION postrider.cancel(bigint) IS
    'Cancels a pending delivery: state canceled, reason CanceledByOperator. Returns canceled. The delivery may be on '
    'hold or in a batch, which it leaves. An attempt that is in progress, or begins within 100 ms, may still reach '
    'the endpoint; its result is not recorded, and a NOTICE reports it.';
COMMENT ON FUNCTION postrider.retry_now(bigint) IS
    'Makes the next attempt of a pending delivery due now. Its attempts and its time to live stay the same. A member '
    'leaves its batch and is attempted alone. A delivery that waits for admission keeps waiting. A delivery that is '
    'due already does not change. Fails while an attempt is in progress, and while the event subscription is paused, '
    'in probation or not validated: resume or release it first.';
COMMENT ON FUNCTION postrider.dead_letter_now(bigint) IS
    'Ends a pending delivery as a dead letter, reason DeadLetteredByOperator, also if the event subscription keeps no '
    'dead letters. Returns the dead letter''s id. Otherwise like postrider.cancel().';
COMMENT ON FUNCTION postrider.pause(text, text, boolean) IS
    'Holds the deliveries of an event subscription until postrider.resume(). None is attempted and none is lost. From '
    'the commit on, every publish on every node observes the pause. An attempt that is in progress, or begins within '
    '100 ms, finishes. stop_time_to_live: the pause does not count toward the time to live; NULL keeps the current '
    'setting, which is false at first. Pausing a paused event subscription changes this setting only.';
COMMENT ON FUNCTION postrider.resume(text, text) IS
    'Ends a pause. The held deliveries are released in waves, which begin within a second. If the pause stopped the '
    'time to live, the nodes first correct the age of the deliveries, step by step; until then hold stays paused, and '
    'postrider.pause() is rejected. Resuming an event subscription that is not paused does nothing.';
COMMENT ON FUNCTION postrider.release(text, text) IS
    'Ends a probation without waiting for its probe. If the policy puts the endpoint as a whole in probation, this '
    'applies to all event subscriptions that share it. The held deliveries are released in waves, which begin within '
    'a second. Without a probation it does nothing. Fails while the event subscription is paused or not validated.';
COMMENT ON FUNCTION postrider.erase_event(uuid, date) IS
    'Erases the content of an event: body and subject of the event and of its dead letters, and request_headers, '
    'response_headers, response_excerpt, last_response, error and last_error of its attempts, also in '
    'postrider.problems; of a batch, the response to all of it. Pending deliveries are canceled first, reason '
    'EventErased. Ids, types, times, attempts and states stay. erased_at is set, and the dead letters cannot be '
    'redelivered or exported. Repairs of the event are erased in the same way, with edit. Returns how many events were '
    'erased; 0 = it was erased before. day: the event''s UTC day, which avoids searching the others. Not '
    'erased: exported files, copies at endpoints, late responses to requests in progress, the error and response in '
    'events of postrider.system about problems, PostgreSQL''s write-ahead log and backups, and dead rows until a '
    'vacuum. Waits for running redeliveries and erases what they created; it needs READ COMMITTED, PostgreSQL''s '
    'default isolation. Fails while a dead letter of the event is being exported: try again in a minute.';

-- +goose Down
DROP FUNCTION postrider.erase_event, postrider.release, postrider.resume, postrider.pause, postrider.dead_letter_now,
    postrider.retry_now, postrider.cancel;
