package store

import (
	"fmt"
	"strings"
)

// What recording a delivery's result and recording a batch's have in common.
const (
	// resultInput is the group, one row for each result; owner_id is the delivery's or the batch's id.
	resultInput = `
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::int[], $6::int[], $7::timestamptz[], $8::bigint[],
                         $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::int[], $14::text[], $15::text[], $16::bytea[], $17::bytea[],
                         $18::text[], $19::timestamptz[], $20::int[], $21::text[], $22::text[], $23::bigint[], $24::bigint[], $25::bigint[], $26::bigint[], $27::uuid[], $29::timestamptz[], $30::text[], $31::timestamptz[], $32::timestamptz[],
                         $33::bytea[])
           AS i(job_id, owner_id, subscription_id, retry_policy, number, reruns, started_at, duration_us,
                dns_us, connect_us, tls_us, first_byte_us, status, outcome, error, headers, excerpt,
                verdict, next_at, skipped_marks, reason, rule, step_ms, floor_ms, jitter_ms, retry_after_ms, dead_letter_id, due_at, last_hold, job_made, not_before,
                request_headers)`

	// recordedAttempts and recordedAttemptsFrom write one row for each request; between them stand whose it was.
	recordedAttempts = `
    INSERT INTO postrider_internal.delivery_attempts (delivery_id, batch_id, day, subscription_id, job_id, number, reruns, due_at, started_at, duration_us, dns_us, connect_us, tls_us,
           first_byte_us, status, outcome, error, verdict, next_attempt_at, rule, step_ms, floor_ms, jitter_ms, retry_after_ms, hold, skipped_marks, node, response_headers, response_excerpt,
           request_headers)
    SELECT `
	recordedAttemptsFrom = `, (now() AT TIME ZONE 'UTC')::date, subscription_id, job_id, number, reruns, due_at, started_at, duration_us, dns_us, connect_us, tls_us,
           first_byte_us, status, outcome, error, verdict, next_at, rule, step_ms, floor_ms, jitter_ms, retry_after_ms, last_hold, skipped_marks, $28, headers, excerpt, request_headers
      FROM result WHERE number > 0`

	// endedColumns are what a finished delivery d takes along, with what its last request r met, if there was one.
	endedColumns = `
    RETURNING d.id, d.subscription_id, d.topic_id, d.event_uuid, d.event_day, d.batch_id, CASE WHEN r.number > 0 THEN r.number ELSE d.attempts END AS attempts, d.reruns,
              CASE WHEN r.number > 0 THEN r.status ELSE d.last_status END AS last_status, CASE WHEN r.number > 0 THEN r.outcome ELSE d.last_outcome END AS last_outcome,
              d.owed_since, coalesce(d.first_attempt_at, CASE WHEN r.number > 0 THEN r.started_at END) AS first_attempt_at,
              CASE WHEN r.number > 0 THEN r.started_at ELSE d.last_attempt_at END AS last_attempt_at, d.redelivered_from, d.operation_id,
              r.state, r.reason, r.error, r.excerpt, r.retry_policy, r.dead_letter_id`

	recordedHistory = `
    INSERT INTO postrider_internal.delivery_history (id, day, subscription_id, topic_id, event_uuid, event_day, attempts, reruns, last_status, batch_id, owed_since,
           first_attempt_at, last_attempt_at, finished_at, state, reason, last_outcome, redelivered_from, operation_id, dead_letter_id)
    SELECT id, (now() AT TIME ZONE 'UTC')::date, subscription_id, topic_id, event_uuid, event_day, attempts, reruns, last_status, batch_id, owed_since,
           first_attempt_at, last_attempt_at, now(), state, reason, last_outcome, redelivered_from, operation_id, dead_letter_id
      FROM finished`

	// recordedLetters copies the event: a dead letter outlives it. One that is to be exported becomes due some time
	// after its last attempt, or after now where none was made.
	recordedLetters = `
    INSERT INTO postrider_internal.dead_letters (id, dead_lettered_at, delivery_id, subscription_id, topic_id, topic, subscription, endpoint_base_url, reason, attempts,
           last_outcome, last_status, last_error, last_response, first_attempt_at, last_attempt_at, owed_since, published_at, event_time, event_uuid, event_day, event_id, event_type,
           subject, source, data_version, schema, traceparent, tracestate, retry_policy, redelivered_from, export_state, export_due_at, export_give_up_at, export_attempts, body)
    SELECT f.dead_letter_id, now(), f.id, f.subscription_id, f.topic_id, t.name, s.name, s.endpoint_base_url, f.reason, f.attempts,
           f.last_outcome, f.last_status, f.error, f.excerpt, f.first_attempt_at, f.last_attempt_at, f.owed_since, e.published_at, e.event_time, f.event_uuid, f.event_day, e.event_id, e.event_type,
           e.subject, e.source, e.data_version, e.schema, e.traceparent, e.tracestate, f.retry_policy, f.redelivered_from,
           CASE WHEN x.due_at IS NOT NULL THEN 'pending' END, x.due_at, x.due_at + x.give_up, CASE WHEN x.due_at IS NOT NULL THEN 0 END, e.body
      FROM finished f
     CROSS JOIN LATERAL (SELECT * FROM postrider_internal.event_subscriptions s WHERE s.id = f.subscription_id LIMIT 1) s
     CROSS JOIN LATERAL (SELECT * FROM postrider_internal.topics t WHERE t.id = f.topic_id LIMIT 1) t
     CROSS JOIN LATERAL (SELECT * FROM postrider_internal.events e WHERE e.id = f.event_uuid AND e.day = f.event_day LIMIT 1) e
      LEFT JOIN LATERAL (SELECT coalesce(f.last_attempt_at, now()) + p.dead_letter_delay AS due_at, p.dead_letter_give_up AS give_up
                           FROM postrider_internal.retry_policies p WHERE p.name = f.retry_policy AND s.dead_letter_destination ->> 'endpointType' IN ('Blob', 'StorageBlob') LIMIT 1) x ON true
     WHERE f.state = 'dead_lettered'`
)

// scaledStatement is statement under Options.TimeScale: what a dead letter's export waits is the only wait that a statement takes from
// the retry policies itself.
func scaledStatement[T any](scale int, statement func([]T) string) func([]T) string {
	if scale <= 1 {
		return statement
	}
	waits := strings.NewReplacer("p.dead_letter_delay", fmt.Sprintf("p.dead_letter_delay / %d", scale), "p.dead_letter_give_up", fmt.Sprintf("p.dead_letter_give_up / %d", scale))
	return func(group []T) string { return waits.Replace(statement(group)) }
}
