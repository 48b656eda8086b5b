-- +goose Up
-- The functions that operators call for one delivery, event subscription or event. REST API, CLI and dashboard call the
-- functions of the same names in postrider_internal, which also take the actor.

-- +goose StatementBegin
CREATE FUNCTION postrider.cancel(delivery_id bigint) RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT postrider_internal.cancel(delivery_id, NULL, NULL) $$;

CREATE FUNCTION postrider.retry_now(delivery_id bigint) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT postrider_internal.retry_now(delivery_id, NULL, NULL) $$;

CREATE FUNCTION postrider.dead_letter_now(delivery_id bigint) RETURNS uuid LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT postrider_internal.dead_letter_now(delivery_id, NULL, NULL) $$;

CREATE FUNCTION postrider.pause(topic text, subscription text, stop_time_to_live boolean DEFAULT NULL) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT postrider_internal.pause(topic, subscription, stop_time_to_live, NULL, NULL) $$;

CREATE FUNCTION postrider.resume(topic text, subscription text) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT postrider_internal.resume(topic, subscription, NULL, NULL) $$;

CREATE FUNCTION postrider.release(topic text, subscription text) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT postrider_internal.release(topic, subscription, NULL, NULL) $$;

CREATE FUNCTION postrider.erase_event(system_id uuid, day date DEFAULT NULL) RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT postrider_internal.erase_event(system_id, day, NULL, NULL) $$;
-- +goose StatementEnd

REVOKE EXECUTE ON FUNCTION postrider.cancel(bigint), postrider.retry_now(bigint), postrider.dead_letter_now(bigint),
    postrider.pause(text, text, boolean), postrider.resume(text, text), postrider.release(text, text),
    postrider.erase_event(uuid, date) FROM PUBLIC;
COMMENT ON FUNCTION postrider.cancel(bigint) IS 'Ends a pending delivery: state canceled, reason CanceledByOperator, which it answers: canceled. On hold or not, alone or in a batch, which it leaves. An attempt that is under way, or begins within the next 100 ms, may still reach the endpoint; nothing of it is recorded, and a NOTICE says so. Commit soon: a transaction that idles for 5 s after it is ended.';
COMMENT ON FUNCTION postrider.retry_now(bigint) IS 'Makes a pending delivery''s next attempt due now; its count of attempts and its time to live stay. A member leaves its batch and goes alone. One that waits for admission stays behind that limit; one that is due already is left as it is. An error while an attempt is under way, and while its event subscription is on hold: resume or release that first.';
COMMENT ON FUNCTION postrider.dead_letter_now(bigint) IS 'Gives a pending delivery up: it becomes a dead letter, reason DeadLetteredByOperator, whose id it answers; also where the event subscription keeps no dead letters. For the rest as postrider.cancel().';
COMMENT ON FUNCTION postrider.pause(text, text, boolean) IS 'Holds an event subscription''s deliveries until postrider.resume(): none is attempted, none is lost. The next publish on every node obeys once this is committed; an attempt that begins within 100 ms of that, or is under way, finishes. stop_time_to_live: the pause does not count for their time to live; NULL leaves it as it is, at first false. Pausing what is paused changes no more than that.';
COMMENT ON FUNCTION postrider.resume(text, text) IS 'Ends a pause. What it held is released in waves, which begin within a second. Of a pause that stopped the time to live the deliveries'' age is corrected first, by the nodes, step by step; the pause holds until that is done. Resuming what is not paused is nothing.';
COMMENT ON FUNCTION postrider.release(text, text) IS 'Ends a probation without waiting for its probe; where the policy rests the endpoint as a whole, for all event subscriptions that share it. What is held is released in waves, which begin within a second. Releasing what is not on probation is nothing; an error while paused or not validated.';
COMMENT ON FUNCTION postrider.erase_event(uuid, date) IS 'Erases what an event says, everywhere: body and subject of the event and of its dead letters, what endpoints answered, and what went wrong, which may repeat it. What is pending of it is canceled first, reason EventErased. Ids, types, times, attempts and states stay; erased_at marks it, and its dead letters cannot be redelivered. Answers how many events were erased: 0 = it was before. day: its UTC day, which saves a look at the others. Exported dead letters and what endpoints keep are out of reach; an error while a dead letter of it is being exported.';

-- +goose Down
DROP FUNCTION postrider.erase_event, postrider.release, postrider.resume, postrider.pause, postrider.dead_letter_now,
    postrider.retry_now, postrider.cancel;
