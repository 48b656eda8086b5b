package store

import (
	"context"
	"fmt"
	"time"

	"postrider/policy"
)

// Note is the verdict of a late answer that changed nothing: it is written down and no more.
const Note policy.VerdictAction = "note"

// lateStatement records an answer that came after the ack timeout had ended its attempt. Everything is joined to
// timed_out, the row of that attempt: an attempt that was never recorded (its node was thought dead, its job replaced)
// has no late answer, and none has two.
//
// A late success ends the delivery only through the queued retry's job row, which it deletes: the row is the token of
// the next attempt, and whoever runs it decides. One that runs, or that is locked at this moment by a fetch, is left alone. A
// delivery on hold has no such row, and its own is the token: a release locks it.
// Ids alone would not do, see JobToken: the event must be the one that was sent ($20), and of a batch the time at which it was made.
// The delivery keeps its count of attempts: the answer belongs to one that is counted.
const lateStatement = `
WITH timed_out AS (
    SELECT FROM postrider_internal.delivery_attempts a
     WHERE a.delivery_id = $1 AND a.job_id = $2 AND a.day >= (now() AT TIME ZONE 'UTC')::date - 1
    HAVING bool_and(NOT a.late)
), free AS (
    SELECT j.id FROM postrider_internal.deliveries d JOIN postrider_internal.river_job j ON j.id = d.job_id
     WHERE $3 AND d.id = $1 AND d.event_uuid = $20 AND j.state <> 'running' AND j.kind = 'deliver' AND EXISTS (SELECT FROM timed_out)
       FOR UPDATE OF j SKIP LOCKED
), gone AS (
    DELETE FROM postrider_internal.river_job j USING free WHERE j.id = free.id RETURNING j.id
), held AS (
    SELECT d.id FROM postrider_internal.deliveries d WHERE $3 AND d.id = $1 AND d.event_uuid = $20 AND d.hold IS NOT NULL AND EXISTS (SELECT FROM timed_out) FOR UPDATE SKIP LOCKED
), finished AS (
    DELETE FROM postrider_internal.deliveries d WHERE d.id = $1 AND (d.job_id IN (SELECT id FROM gone) OR d.id IN (SELECT id FROM held)) RETURNING d.*
), ended AS (SELECT FROM finished
), going_on AS (SELECT FROM postrider_internal.deliveries WHERE id = $1
), ` + lateEnds + `
), answered AS (` + lateAnswer + "$1, NULL" + lateAnswerFrom + `
)
SELECT EXISTS (SELECT FROM ended)`

// What a delivery's and a batch's late answer have in common.
const (
	lateEnds = `history AS (
    INSERT INTO postrider_internal.delivery_history (id, day, subscription_id, topic_id, event_uuid, event_day, attempts, reruns, last_status, batch_id, owed_since,
           first_attempt_at, last_attempt_at, finished_at, state, last_outcome, redelivered_from, operation_id)
    SELECT id, (now() AT TIME ZONE 'UTC')::date, subscription_id, topic_id, event_uuid, event_day, attempts, reruns, $4, batch_id, owed_since,
           first_attempt_at, last_attempt_at, now(), 'delivered', $5, redelivered_from, operation_id
      FROM finished
), rolled AS (` + rolledEnds + "'delivered', CASE WHEN attempts = 1 THEN 'FirstAttempt' ELSE '' END" + rolledEndsFrom + `
`
	// Between these two stand the ids of the delivery and of the batch, one of them NULL.
	lateAnswer = `
    INSERT INTO postrider_internal.delivery_attempts (delivery_id, batch_id, day, subscription_id, job_id, number, reruns, started_at, duration_us, dns_us, connect_us, tls_us,
           first_byte_us, status, outcome, verdict, rule, late, node, response_headers, response_excerpt)
    SELECT `
	lateAnswerFrom = `, (now() AT TIME ZONE 'UTC')::date, $6, $2, $7, $8, $9, $10, $11, $12, $13,
           $14, $4, $5, CASE WHEN EXISTS (SELECT FROM ended) THEN 'deliver' ELSE 'note' END,
           $15 || CASE WHEN EXISTS (SELECT FROM ended) THEN '; the queued retry was canceled'
                       WHEN NOT $3 THEN '; only noted'
                       WHEN EXISTS (SELECT FROM going_on) THEN '; only noted: no retry was waiting in the queue'
                       ELSE '; only noted: the ' || $19::text || ' had ended' END,
           true, $16, $17, $18
      FROM timed_out`
)

const (
	lateTimeout = 5 * time.Second
	lateTries   = 3 // of a statement that PostgreSQL itself rolled back to let another through
)

// RecordLate stores an answer to an attempt that was recorded before as timed out, as a second row of that attempt. A
// verdict of Delivered cancels the queued retry, if there is one and it does not run: true says that the delivery, or the batch, ended
// so. Any other verdict is only noted. why is the beginning of the line that explains the row.
//
// Best effort, unlike Record: an answer that cannot be written down is lost, and the retry is made. Event Grid promises
// no more ("attempts to remove the event from the retry queue on a best effort basis", Microsoft, Event Grid message
// delivery and retry, 2019-05-15).
func (r *Recorder) RecordLate(ctx context.Context, result Result, why string) (ended bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, lateTimeout)
	defer cancel()
	statement, what, which := lateStatement, "delivery", any(result.SystemID)
	if result.BatchID != 0 {
		statement, what, which = lateBatchStatement, "batch", result.BatchMade
	}
	for range lateTries {
		err = r.DB.QueryRow(ctx, statement,
			result.owner(), result.JobID, result.Verdict.Action == policy.Delivered, nullInt(int64(result.Status)), string(result.Outcome),
			result.SubscriptionID, result.Number, result.Reruns, result.StartedAt, result.Duration.Microseconds(),
			nullInt(result.Timings.DNS.Microseconds()), nullInt(result.Timings.Connect.Microseconds()), nullInt(result.Timings.TLS.Microseconds()),
			nullInt(result.Timings.FirstByte.Microseconds()), why, r.Node, result.ResponseHeaders, result.ResponseExcerpt, what, which,
		).Scan(&ended)
		if !isTransient(err) {
			break
		}
	}
	if err == nil && result.Verdict.Action == policy.Delivered {
		err = r.endRest(ctx, result.Rest.key)
	}
	if err != nil {
		return ended, fmt.Errorf("record a %s's late answer: %w", what, err)
	}
	return ended, nil
}
