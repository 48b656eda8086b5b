package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"postrider/policy"
)

// recordStatement is T3. The job row is the token: whatever follows is joined to gone, so that only the statement that
// deletes the row records the attempt, moves the delivery on and inserts the successor. A node that was thought dead
// and comes back deletes nothing, and so changes nothing.
//
// A successor is a new row, never the same one moved to a later time: River marks a finished run completed by its id,
// and it would mark the next run instead (199 of 200 events were lost so in a test).
//
// Planning is a third of what the whole statement takes, most of it for parts that most groups do not need: goesOn are those
// of retries and holds, letters is that of dead letters.
func recordStatement(goesOn, letters bool) string {
	statement := recordedFence
	if goesOn {
		statement += recordedMoves
	}
	statement += recordedEnds
	if letters {
		statement += `, letters AS (` + recordedLetters + `)`
	}
	return statement + ` SELECT coalesce(array_agg(id), '{}') FROM gone`
}

const (
	recordedFence = `
WITH input AS (
    SELECT r.*, r.owner_id AS delivery_id FROM (` + resultInput + `) r
), gone AS (
    DELETE FROM postrider_internal.river_job j USING input WHERE j.id = ANY ($1::bigint[]) AND j.id = input.job_id AND j.created_at = input.job_made RETURNING j.id
), result AS MATERIALIZED (
    SELECT input.*, CASE verdict WHEN 'retry' THEN nextval('postrider_internal.river_job_id_seq') END AS next_job,
           CASE verdict WHEN 'deliver' THEN 'delivered' WHEN 'dead_letter' THEN 'dead_lettered' WHEN 'drop' THEN 'dropped' WHEN 'cancel' THEN 'canceled' END AS state
      FROM input JOIN gone ON gone.id = input.job_id
), attempts AS (` + recordedAttempts + "delivery_id, NULL" + recordedAttemptsFrom + `
), rolled_attempts AS (` + rolledAttempts + `)`

	recordedMoves = `, moved_on AS (
    UPDATE postrider_internal.deliveries d
       SET attempts = r.number, skipped_marks = r.skipped_marks, last_status = r.status, last_outcome = r.outcome, job_id = r.next_job,
           first_attempt_at = coalesce(d.first_attempt_at, r.started_at), last_attempt_at = r.started_at, next_attempt_at = r.next_at, not_before = r.not_before,
           last_hold = NULL
      FROM result r
     WHERE d.id = r.delivery_id AND r.next_job IS NOT NULL AND d.id = ANY (ARRAY (SELECT delivery_id FROM result WHERE next_job IS NOT NULL))
), successors AS (
    INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT next_job, CASE WHEN next_at` + elseScheduled + `,
           jsonb_build_object('d', delivery_id, 's', subscription_id, 'n', number + 1), 'deliver', 'deliveries', 1, 1000, next_at
      FROM result WHERE next_job IS NOT NULL
), parked AS (
    UPDATE postrider_internal.deliveries d SET job_id = NULL, hold = r.reason, held_reruns = r.reruns, next_attempt_at = coalesce(r.next_at, d.next_attempt_at)
      FROM result r
     WHERE d.id = r.delivery_id AND r.verdict = 'hold' AND d.id = ANY (ARRAY (SELECT delivery_id FROM result WHERE verdict = 'hold'))
)`

	recordedEnds = `, finished AS (
    DELETE FROM postrider_internal.deliveries d USING result r
     WHERE d.id = r.delivery_id AND r.next_job IS NULL AND r.state IS NOT NULL
       AND d.id = ANY (ARRAY (SELECT delivery_id FROM result WHERE next_job IS NULL AND state IS NOT NULL))` + endedColumns + `
), history AS (` + recordedHistory + `
), rolled_ends AS (` + rolledEnds + "state, " + endedDetail + rolledEndsFrom + `)`
)

// recordStatements are the four, by what a group needs.
var recordStatements = [2][2]string{
	{recordStatement(false, false), recordStatement(false, true)},
	{recordStatement(true, false), recordStatement(true, true)},
}

// recordStatementFor is the shortest one that records the group.
func recordStatementFor(group []*recordRequest) string {
	var goesOn, letters int
	for _, req := range group {
		switch req.Verdict.Action {
		case policy.DeadLetter:
			letters = 1
		case policy.Retry, Hold:
			goesOn = 1
		case policy.Delivered, policy.Drop, Cancel:
		}
	}
	return recordStatements[goesOn][letters]
}

func (r *recorder[T]) write(group []T) error {
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	var found []*evidence
	for _, req := range group {
		if e := r.store.evidenceOf(&req.single().Result); e != nil {
			found = append(found, e)
		}
	}
	if err := r.recordWith(ctx, group, found); err != nil {
		return fmt.Errorf("record %d results: %w", len(group), err)
	}
	for _, req := range group {
		// A retry that is due within the poll interval is worth a wake-up.
		if req.single().Verdict.Action == policy.Retry {
			r.store.poke()
			break
		}
	}
	return nil
}

// resultColumns turns the group into one array per column, in the order of recordStatement's parameters.
func resultColumns(node string, group []*recordRequest) []any {
	return []any{
		column(group, func(q *recordRequest) int64 { return q.JobID }),
		column(group, func(q *recordRequest) int64 { return q.owner() }),
		column(group, func(q *recordRequest) int64 { return q.SubscriptionID }),
		column(group, func(q *recordRequest) string { return q.RetryPolicy }),
		column(group, func(q *recordRequest) int { return q.Number }),
		column(group, func(q *recordRequest) int { return q.Reruns }),
		column(group, func(q *recordRequest) pgtype.Timestamptz { return nullTime(q.StartedAt) }),
		column(group, func(q *recordRequest) int64 { return q.Duration.Microseconds() }),
		column(group, func(q *recordRequest) pgtype.Int8 { return nullInt(q.Timings.DNS.Microseconds()) }),
		column(group, func(q *recordRequest) pgtype.Int8 { return nullInt(q.Timings.Connect.Microseconds()) }),
		column(group, func(q *recordRequest) pgtype.Int8 { return nullInt(q.Timings.TLS.Microseconds()) }),
		column(group, func(q *recordRequest) pgtype.Int8 { return nullInt(q.Timings.FirstByte.Microseconds()) }),
		column(group, func(q *recordRequest) pgtype.Int8 { return nullInt(int64(q.Status)) }),
		column(group, func(q *recordRequest) pgtype.Text { return nullText(string(q.Outcome)) }),
		column(group, func(q *recordRequest) pgtype.Text { return nullText(q.Error) }),
		column(group, func(q *recordRequest) []byte { return q.ResponseHeaders }),
		column(group, func(q *recordRequest) []byte { return q.ResponseExcerpt }),
		column(group, func(q *recordRequest) string { return string(q.Verdict.Action) }),
		column(group, func(q *recordRequest) pgtype.Timestamptz { return nullTime(q.Verdict.At) }),
		column(group, func(q *recordRequest) int { return q.Verdict.SkippedMarks }),
		column(group, func(q *recordRequest) pgtype.Text { return nullText(string(q.Verdict.Reason)) }),
		column(group, func(q *recordRequest) string { return q.Verdict.Why.String() }),
		column(group, func(q *recordRequest) pgtype.Int8 { return nullInt(q.Verdict.Why.Step.Milliseconds()) }),
		column(group, func(q *recordRequest) pgtype.Int8 { return nullInt(q.Verdict.Why.Floor.Milliseconds()) }),
		column(group, func(q *recordRequest) pgtype.Int8 { return nullInt(q.Verdict.Why.Jitter.Milliseconds()) }),
		column(group, func(q *recordRequest) pgtype.Int8 { return nullInt(q.Verdict.Why.RetryAfter.Milliseconds()) }),
		column(group, func(q *recordRequest) pgtype.UUID {
			return pgtype.UUID{Bytes: q.deadLetterID, Valid: q.Verdict.Action == policy.DeadLetter}
		}),
		node,
		column(group, func(q *recordRequest) pgtype.Timestamptz { return nullTime(q.DueAt) }),
		column(group, func(q *recordRequest) pgtype.Text { return nullText(q.LastHold) }),
		column(group, func(q *recordRequest) time.Time { return q.JobMade }),
		column(group, func(q *recordRequest) pgtype.Timestamptz { return nullTime(q.Verdict.NotBefore) }),
		column(group, func(q *recordRequest) []byte { return q.RequestHeaders }),
	}
}
