package store

import (
	"context"
	"fmt"

	"postrider/policy"
)

// lateBatchStatement is lateStatement for a batch: a late success ends it, with all that are still in it, through the queued
// retry's job row. Members that left meanwhile go their own ways.
const lateBatchStatement = `
WITH timed_out AS (
    SELECT FROM postrider_internal.delivery_attempts a
     WHERE a.batch_id = $1 AND a.job_id = $2 AND a.day >= (now() AT TIME ZONE 'UTC')::date - 1
    HAVING bool_and(NOT a.late)
), free AS (
    SELECT j.id FROM postrider_internal.batches b JOIN postrider_internal.river_job j ON j.id = b.job_id
     WHERE $3 AND b.id = $1 AND j.kind = 'batch' AND j.state <> 'running' AND EXISTS (SELECT FROM timed_out)
       FOR UPDATE OF j SKIP LOCKED
), gone AS (
    DELETE FROM postrider_internal.river_job j USING free WHERE j.id = free.id RETURNING j.id
), held AS (
    SELECT b.id FROM postrider_internal.batches b WHERE $3 AND b.id = $1 AND b.hold IS NOT NULL AND EXISTS (SELECT FROM timed_out) FOR UPDATE SKIP LOCKED
), ended AS (
    UPDATE postrider_internal.batches b SET state = 'delivered', finished_at = now(), job_id = NULL, hold = NULL, next_attempt_at = NULL, last_status = $4, last_outcome = $5
     WHERE b.id = $1 AND (b.job_id IN (SELECT id FROM gone) OR b.id IN (SELECT id FROM held)) RETURNING b.id
), finished AS (
    DELETE FROM postrider_internal.deliveries d USING ended WHERE d.batch_id = ended.id RETURNING d.*
), going_on AS (SELECT FROM postrider_internal.batches WHERE id = $1 AND state = 'pending'
), ` + lateEnds + `
), answered AS (` + lateAnswer + "NULL, $1" + lateAnswerFrom + `
)
SELECT EXISTS (SELECT FROM ended)`

// RecordLateBatch is RecordLate for a batch.
func (s *Store) RecordLateBatch(ctx context.Context, r Result, why string) (ended bool, err error) {
	return s.recordLate(ctx, lateBatchStatement, "batch", r, why)
}

func (s *Store) recordLate(ctx context.Context, statement, what string, r Result, why string) (ended bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, lateTimeout)
	defer cancel()
	for range lateTries {
		err = s.pool.QueryRow(ctx, statement,
			r.owner(), r.JobID, r.Verdict.Action == policy.Delivered, nullInt(int64(r.Status)), string(r.Outcome),
			r.SubscriptionID, r.Number, r.Reruns, r.StartedAt, r.Duration.Microseconds(),
			nullInt(r.Timings.DNS.Microseconds()), nullInt(r.Timings.Connect.Microseconds()), nullInt(r.Timings.TLS.Microseconds()),
			nullInt(r.Timings.FirstByte.Microseconds()), why, s.node, r.ResponseHeaders, r.ResponseExcerpt, what,
		).Scan(&ended)
		if !isTransient(err) {
			break
		}
	}
	if err == nil && r.Verdict.Action == policy.Delivered {
		err = s.endRest(ctx, r.Rest.key)
	}
	if err != nil {
		return ended, fmt.Errorf("record a %s's late answer: %w", what, err)
	}
	return ended, nil
}
