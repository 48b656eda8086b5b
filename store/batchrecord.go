package store

import (
	"context"
	"fmt"
	"slices"

	"postrider/policy"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// Leave is the verdict on a batch whose job stays: members leave it before its request, and are told as fates.
const Leave policy.VerdictAction = "leave"

// ReasonOwnTime is why a member leaves its batch to be attempted alone: its time to live ends before the batch's next attempt.
const ReasonOwnTime policy.Reason = "OwnTime"

// ReasonUnsendable is why a member leaves whose event cannot be written into a request's body: alone it keeps nobody else waiting.
const ReasonUnsendable policy.Reason = "Unsendable"

// ReasonHeaderValue is why a member leaves whose values of Dynamic headers are not those of the batch's first member: the
// headers were changed after the batch was cut.
const ReasonHeaderValue policy.Reason = "HeaderValue"

// BatchResult is what became of one attempt of a batch, or of its turn that ended without one. The verdict is that of all
// members but those with a fate of their own: these leave the batch, unless it ends.
type BatchResult struct {
	Result
	// Bytes of the request's body; 0 = none was written.
	Bytes int
	Fates []Fate
}

// Fate is the verdict on one member. A batch's own verdict is never DeadLetter for members without a fate: each dead letter has
// an id of its own.
type Fate struct {
	DeliveryID int64
	Verdict    policy.Verdict
}

type batchRequest struct {
	recordRequest
	bytes  int
	fates  []Fate
	ids    []uuid.UUID // the dead letters', one for each fate
	weight int         // deliveries that the statement touches
	lost   bool        // the job row was gone: set before done is closed
}

// RecordBatch is Record for a batch. ErrNotFound: the job row is gone, and nothing was recorded.
func (s *Store) RecordBatch(ctx context.Context, result BatchResult) error {
	req := &batchRequest{
		recordRequest: recordRequest{Result: result.Result, done: make(chan struct{})},
		bytes:         result.Bytes, fates: result.Fates, ids: make([]uuid.UUID, len(result.Fates)), weight: max(result.Events, len(result.Fates), 1),
	}
	for i, fate := range result.Fates {
		if fate.Verdict.Action != policy.DeadLetter {
			continue
		}
		s.Reach(PointDeadLetter)
		req.ids[i] = s.ids.One()
	}
	s.batchRecorder.queue.add(req)
	select {
	case <-req.done:
		if req.lost && req.failed == nil {
			return fmt.Errorf("batch %d: %w", req.BatchID, ErrJobGone)
		}
		return req.failed
	case <-ctx.Done():
		return fmt.Errorf("record the batch: %w", ctx.Err())
	}
}

// flushDeliveries bounds one statement of batches beside flushResults: a batch may have 5,000 members.
const flushDeliveries = 5000

func fitsBatchFlush() func(*batchRequest) bool {
	n, deliveries := 0, 0
	return func(q *batchRequest) bool {
		n++
		deliveries += q.weight
		return n <= flushResults && (n == 1 || deliveries <= flushDeliveries)
	}
}

// recordBatchStatement is T3 for batches, and fenced in the same way: token are the job rows that were deleted, and those
// that stay and are locked (leave). Each member has the fate that was given for it, else the batch's. While the batch goes
// on, a member with another fate leaves it: it ends, or gets a job of its own. batch_members keeps when and why.
const recordBatchStatement = `
WITH input AS (
    SELECT r.*, r.owner_id AS batch_id, b.bytes FROM (` + resultInput + `) r JOIN unnest($1::bigint[], $34::bigint[]) AS b(job_id, bytes) ON b.job_id = r.job_id
), gone AS (
    DELETE FROM postrider_internal.river_job j USING input WHERE j.id = ANY (ARRAY (SELECT job_id FROM input WHERE verdict <> 'leave')) AND j.id = input.job_id AND j.created_at = input.job_made RETURNING j.id
), kept AS MATERIALIZED (
    SELECT j.id FROM postrider_internal.river_job j JOIN input ON j.id = input.job_id AND j.created_at = input.job_made
     WHERE j.id = ANY (ARRAY (SELECT job_id FROM input WHERE verdict = 'leave')) FOR UPDATE OF j
), token AS MATERIALIZED (
    SELECT id FROM gone UNION ALL SELECT id FROM kept
), result AS MATERIALIZED (
    SELECT input.*, CASE verdict WHEN 'retry' THEN nextval('postrider_internal.river_job_id_seq') END AS next_job,
           verdict NOT IN ('retry', 'hold', 'leave') AS ends
      FROM input JOIN token ON token.id = input.job_id
), members AS MATERIALIZED (
    SELECT d.id, CASE WHEN r.number > 0 THEN r.number ELSE d.attempts END AS made, r.batch_id, r.job_id, r.subscription_id, r.retry_policy, r.number, r.status, r.outcome, r.error, r.excerpt, r.started_at, r.skipped_marks, r.ends,
           f.delivery_id IS NOT NULL AND f.verdict = 'retry' AS alone, coalesce(f.next_at, r.next_at) AS next_at, f.not_before, CASE WHEN f.delivery_id IS NULL THEN r.reason ELSE f.reason END AS reason,
           f.dead_letter_id, CASE WHEN f.delivery_id IS NOT NULL AND f.verdict = 'retry' THEN nextval('postrider_internal.river_job_id_seq') END AS next_job,
           CASE coalesce(f.verdict, r.verdict) WHEN 'deliver' THEN 'delivered' WHEN 'dead_letter' THEN 'dead_lettered' WHEN 'drop' THEN 'dropped' WHEN 'cancel' THEN 'canceled' END AS state
      FROM result r
     CROSS JOIN LATERAL (SELECT d.id, d.attempts FROM postrider_internal.deliveries d WHERE d.batch_id = r.batch_id OFFSET 0) d
      LEFT JOIN unnest($35::bigint[], $36::bigint[], $37::text[], $38::timestamptz[], $39::timestamptz[], $40::text[], $41::uuid[]) AS f(job_id, delivery_id, verdict, next_at, not_before, reason, dead_letter_id)
             ON f.job_id = r.job_id AND f.delivery_id = d.id
     WHERE f.delivery_id IS NOT NULL OR r.verdict NOT IN ('hold', 'leave')
), attempts AS (` + recordedAttempts + "NULL, batch_id" + recordedAttemptsFrom + `
), stayed AS (
    UPDATE postrider_internal.deliveries d
       SET attempts = m.made, skipped_marks = CASE WHEN m.number > 0 THEN m.skipped_marks ELSE d.skipped_marks END,
           last_status = CASE WHEN m.number > 0 THEN m.status ELSE d.last_status END, last_outcome = CASE WHEN m.number > 0 THEN m.outcome ELSE d.last_outcome END,
           job_id = m.next_job, batch_id = CASE WHEN m.alone THEN NULL ELSE m.batch_id END,
           first_attempt_at = coalesce(d.first_attempt_at, CASE WHEN m.number > 0 THEN m.started_at END),
           last_attempt_at = CASE WHEN m.number > 0 THEN m.started_at ELSE d.last_attempt_at END, next_attempt_at = m.next_at,
           not_before = m.not_before, last_hold = NULL
      FROM members m
     WHERE d.id = m.id AND m.state IS NULL AND d.id = ANY (ARRAY (SELECT id FROM members WHERE state IS NULL))
), finished AS (
    DELETE FROM postrider_internal.deliveries d USING members r WHERE d.id = r.id AND r.state IS NOT NULL
       AND d.id = ANY (ARRAY (SELECT id FROM members WHERE state IS NOT NULL))` + endedColumns + `
), left_it AS (
    UPDATE postrider_internal.batch_members b SET left_at = now(), left_after = m.made, left_reason = CASE WHEN m.alone THEN m.reason ELSE coalesce(m.reason, m.state) END
      FROM members m
     WHERE b.batch_id = m.batch_id AND b.batch_id = ANY ($2::bigint[]) AND b.delivery_id = m.id AND b.delivery_id = ANY (ARRAY (SELECT id FROM members)) AND (m.alone OR NOT m.ends AND m.state IS NOT NULL)
), batches AS (
    UPDATE postrider_internal.batches b
       SET job_id = CASE r.verdict WHEN 'leave' THEN b.job_id ELSE r.next_job END, attempts = CASE WHEN r.number > 0 THEN r.number ELSE b.attempts END,
           hold = CASE r.verdict WHEN 'hold' THEN r.reason END, held_reruns = CASE r.verdict WHEN 'hold' THEN r.reruns ELSE 0 END,
           last_hold = CASE WHEN r.number > 0 THEN NULL ELSE b.last_hold END,
           last_status = CASE WHEN r.number > 0 THEN r.status ELSE b.last_status END, last_outcome = CASE WHEN r.number > 0 THEN r.outcome ELSE b.last_outcome END,
           skipped_marks = CASE WHEN r.number > 0 THEN r.skipped_marks ELSE b.skipped_marks END,
           first_attempt_at = coalesce(b.first_attempt_at, CASE WHEN r.number > 0 THEN r.started_at END),
           last_attempt_at = CASE WHEN r.number > 0 THEN r.started_at ELSE b.last_attempt_at END,
           next_attempt_at = CASE WHEN r.ends THEN NULL ELSE coalesce(r.next_at, b.next_attempt_at) END,
           not_before = CASE WHEN r.number > 0 THEN r.not_before ELSE b.not_before END, bytes = coalesce(nullif(r.bytes, 0), b.bytes),
           members = b.members - CASE WHEN r.ends THEN 0 ELSE (SELECT count(*) FROM members m WHERE m.batch_id = b.id AND (m.alone OR m.state IS NOT NULL)) END,
           state = CASE WHEN r.ends THEN CASE r.verdict WHEN 'deliver' THEN 'delivered' WHEN 'dead_letter' THEN 'dead_lettered' WHEN 'drop' THEN 'dropped' ELSE 'canceled' END ELSE b.state END,
           finished_at = CASE WHEN r.ends THEN now() END
      FROM result r
     WHERE b.id = r.batch_id AND b.id = ANY ($2::bigint[])
), successors AS (
    INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT id, CASE WHEN at` + elseScheduled + `, args, kind, 'deliveries', 1, 1000, at
      FROM (SELECT next_job AS id, jsonb_build_object('s', subscription_id, 'b', batch_id, 'n', number + 1) AS args, 'batch' AS kind, next_at AS at FROM result WHERE next_job IS NOT NULL
            UNION ALL
            SELECT next_job, jsonb_build_object('d', id, 's', subscription_id, 'n', made + 1), 'deliver', next_at FROM members WHERE next_job IS NOT NULL) jobs
), history AS (` + recordedHistory + `
), rolled_attempts AS (` + rolledAttempts + `
), rolled_ends AS (` + rolledEnds + "state, " + endedDetail + rolledEndsFrom + `
), letters AS (` + recordedLetters + `
)
SELECT coalesce(array_agg(id), '{}') FROM token`

// lockJobs comes before recordBatchStatement: a member may leave its batch, by somebody's hand, while its request is under way. Who
// waited for that with the statement's own snapshot would still see it.
const lockJobs = "SELECT count(*) FROM (SELECT FROM postrider_internal.river_job WHERE id = ANY ($1::bigint[]) ORDER BY id FOR UPDATE) locked"

// batchColumns are the parameters of recordBatchStatement: those of a result, the body's size, and the fates.
func batchColumns(node string, group []*batchRequest) []any {
	singles := column(group, (*batchRequest).single)
	var jobs, deliveries []int64
	var verdicts []string
	var times, wanted []pgtype.Timestamptz
	var reasons []pgtype.Text
	var letters []pgtype.UUID
	for _, req := range group {
		for i, fate := range req.fates {
			jobs, deliveries = append(jobs, req.JobID), append(deliveries, fate.DeliveryID)
			verdicts, times = append(verdicts, string(fate.Verdict.Action)), append(times, nullTime(fate.Verdict.At))
			wanted = append(wanted, nullTime(fate.Verdict.NotBefore))
			reason := fate.Verdict.Reason
			if fate.Verdict.Action == policy.Retry && reason == "" {
				reason = ReasonOwnTime
			}
			reasons = append(reasons, nullText(string(reason)))
			letters = append(letters, pgtype.UUID{Bytes: req.ids[i], Valid: req.ids[i] != uuid.UUID{}})
		}
	}
	sizes := column(group, func(q *batchRequest) int64 { return int64(q.bytes) })
	return append(resultColumns(node, singles), sizes, jobs, deliveries, verdicts, times, wanted, reasons, letters)
}

// told learns which results were recorded.
func (q *batchRequest) told(recorded []int64) { q.lost = !slices.Contains(recorded, q.JobID) }

func (q *recordRequest) told([]int64) {}
