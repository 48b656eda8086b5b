package delivery

import (
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"postrider/internal/postgres"
	"postrider/policy"
)

// T3, for any group of results, and its variants for single deliveries or whole batches that end without a dead letter:
// see record.sql.
var (
	recordStatement      = sqlFile("record", append(recordArguments, fateColumns.Names("fates")...)...)
	recordEndsStatement  = sqlFile("record_ends", recordArguments...)
	recordWholeStatement = sqlFile("record_whole", recordArguments...)
	recordArguments      = append([]string{"node", "time_scale"}, resultColumns.Names("results")...)
)

// endStates are the states in which a verdict ends deliveries. They continue after the other verdicts.
var endStates = map[policy.VerdictAction]string{
	policy.Delivered: "delivered", policy.DeadLetter: "dead_lettered", policy.Drop: "dropped", Cancel: "canceled",
}

// ends reports whether recordEndsStatement can record the result, or recordWholeStatement that of a batch.
func (q *recording) ends() bool {
	return len(q.Fates) == 0 && q.Verdict.Action != policy.DeadLetter && endStates[q.Verdict.Action] != ""
}

// lockJobs runs before T3 if a batch is in the group: during the request, an operator's command may take a delivery out
// of its batch. A statement that waited for that transaction would still see the delivery in its own snapshot.
const lockJobs = `SELECT count(*) FROM (
	SELECT FROM postrider_internal.river_job WHERE id = ANY ($1::bigint[]) ORDER BY id FOR UPDATE) locked`

// queueGroup queues the statements that record a group. recorded receives the jobs whose rows existed.
func (r *Recorder) queueGroup(batch *pgx.Batch, group []*recording, recorded *[]int64) {
	batches := slices.ContainsFunc(group, func(q *recording) bool { return q.BatchID != 0 })
	statement := recordEndsStatement
	if batches {
		statement = recordWholeStatement
	}
	args := make([]any, 0, 2+len(resultColumns)+len(fateColumns))
	args = resultColumns.Append(append(args, r.Node, float64(max(r.TimeScale, 1))), group)
	if slices.ContainsFunc(group, func(q *recording) bool { return !q.ends() || (q.BatchID != 0) != batches }) {
		statement = recordStatement
		var fates []fateRow
		for _, req := range group {
			for i := range req.Fates {
				fates = append(fates, fateRow{req.JobID, &req.Fates[i]})
			}
		}
		args = fateColumns.Append(args, fates)
	}
	if batches {
		batch.Queue(lockJobs, postgres.Column(group, func(q *recording) int64 { return q.JobID }))
	}
	batch.Queue(statement, args...).QueryRow(func(row pgx.Row) error { return row.Scan(recorded) })
	r.queueNotices(batch, group)
}

// queueNotices notes deliveries that T3 dead-letters or drops, for event subscriptions of the system topic. It is a
// separate statement because most systems have no such event subscription.
func (r *Recorder) queueNotices(batch *pgx.Batch, group []*recording) {
	const note = `SELECT postrider_internal.note_ends($1::bigint[] ||
		ARRAY (SELECT unnest(delivery_ids) FROM postrider_internal.batches WHERE id = ANY ($2::bigint[])))`
	snapshot := r.Cache.Snapshot()
	if !snapshot.HasSystemSubscribers() {
		return
	}
	fails := func(v policy.Verdict) bool { return v.Action == policy.DeadLetter || v.Action == policy.Drop }
	deliveries, batches := []int64{}, []int64{}
	for _, req := range group {
		switch {
		case !snapshot.NotifiesOf(req.SubscriptionID):
		case fails(req.Verdict) && req.BatchID != 0:
			batches = append(batches, req.BatchID)
		case fails(req.Verdict):
			deliveries = append(deliveries, req.DeliveryID)
		default:
			for i := range req.Fates {
				if fails(req.Fates[i].Verdict) {
					deliveries = append(deliveries, req.Fates[i].DeliveryID)
				}
			}
		}
	}
	if len(deliveries)+len(batches) > 0 {
		batch.Queue(note, deliveries, batches)
	}
}

var resultColumns = postgres.Columns[*recording]{
	postgres.Col("job_id", func(q *recording) int64 { return q.JobID }),
	postgres.Col("job_created_at", func(q *recording) time.Time { return q.CreatedAt }),
	postgres.NullIntCol("delivery_id", func(q *recording) int64 { return q.DeliveryID }),
	postgres.NullIntCol("batch_id", func(q *recording) int64 { return q.BatchID }),
	postgres.Col("subscription_id", func(q *recording) int64 { return q.SubscriptionID }),
	postgres.Col("retry_policy", func(q *recording) string { return q.RetryPolicy }),
	postgres.Col("number", func(q *recording) int { return q.Number }),
	postgres.Col("reruns", func(q *recording) int { return q.Reruns }),
	postgres.NullTimeCol("due_at", func(q *recording) time.Time { return q.DueAt }),
	postgres.NullTextCol("last_hold", func(q *recording) string { return q.LastHold }),
	postgres.NullIntCol("bytes", func(q *recording) int64 { return int64(q.Bytes) }),

	postgres.NullTimeCol("started_at", func(q *recording) time.Time { return q.StartedAt }),
	postgres.Col("duration_us", func(q *recording) int64 { return q.Duration.Microseconds() }),
	postgres.NullIntCol("dns_us", func(q *recording) int64 { return q.Timings.DNS.Microseconds() }),
	postgres.NullIntCol("connect_us", func(q *recording) int64 { return q.Timings.Connect.Microseconds() }),
	postgres.NullIntCol("tls_us", func(q *recording) int64 { return q.Timings.TLS.Microseconds() }),
	postgres.NullIntCol("first_byte_us", func(q *recording) int64 { return q.Timings.FirstByte.Microseconds() }),
	postgres.Col("status", func(q *recording) pgtype.Int8 { return postgres.NullInt(int64(q.Status)) }),
	postgres.NullTextCol("outcome", func(q *recording) string { return string(q.Outcome) }),
	postgres.NullTextCol("error", func(q *recording) string { return q.Error }),
	postgres.Col("request_headers", func(q *recording) []byte { return q.RequestHeaders }),
	postgres.Col("headers", func(q *recording) []byte { return q.ResponseHeaders }),
	postgres.Col("excerpt", func(q *recording) []byte { return q.ResponseExcerpt }),

	postgres.Col("verdict", func(q *recording) string { return string(q.Verdict.Action) }),
	postgres.NullTextCol("state", func(q *recording) string { return endStates[q.Verdict.Action] }),
	postgres.NullTextCol("reason", func(q *recording) string { return string(q.Verdict.Reason) }),
	postgres.NullTimeCol("next_at", func(q *recording) time.Time { return q.Verdict.At }),
	postgres.NullTimeCol("not_before", func(q *recording) time.Time { return q.Verdict.NotBefore }),
	postgres.Col("skipped_offsets", func(q *recording) int { return q.Verdict.SkippedOffsets }),
	postgres.Col("rule", func(q *recording) string { return q.Verdict.Why.String() }),
	postgres.NullIntCol("step_ms", func(q *recording) int64 { return q.Verdict.Why.Step.Milliseconds() }),
	postgres.NullIntCol("floor_ms", func(q *recording) int64 { return q.Verdict.Why.Floor.Milliseconds() }),
	postgres.NullIntCol("jitter_ms", func(q *recording) int64 { return q.Verdict.Why.Jitter.Milliseconds() }),
	postgres.NullIntCol("retry_after_ms", func(q *recording) int64 { return q.Verdict.Why.RetryAfter.Milliseconds() }),
}

// fateRow is a fate with the job of its result.
type fateRow struct {
	jobID int64
	*Fate
}

var fateColumns = postgres.Columns[fateRow]{
	postgres.Col("job_id", func(f fateRow) int64 { return f.jobID }),
	postgres.Col("delivery_id", func(f fateRow) int64 { return f.DeliveryID }),
	postgres.Col("verdict", func(f fateRow) string { return string(f.Verdict.Action) }),
	postgres.NullTextCol("state", func(f fateRow) string { return endStates[f.Verdict.Action] }),
	postgres.NullTimeCol("next_at", func(f fateRow) time.Time { return f.Verdict.At }),
	postgres.NullTimeCol("not_before", func(f fateRow) time.Time { return f.Verdict.NotBefore }),
	postgres.Col("reason", func(f fateRow) pgtype.Text {
		if f.Verdict.Action == policy.Retry && f.Verdict.Reason == "" {
			return postgres.NullText(string(reasonOwnTime))
		}
		return postgres.NullText(string(f.Verdict.Reason))
	}),
	postgres.Col("dead_letter_id", func(f fateRow) pgtype.UUID {
		return pgtype.UUID{Bytes: f.deadLetter, Valid: f.deadLetter != uuid.UUID{}}
	}),
}
