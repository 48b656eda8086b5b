package delivery

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"postrider/policy"
	"postrider/postgres"
)

// T3, for any group of results and for the most frequent ones: see record.sql.
var (
	recordStatement     = withResults(sqlFile("record.sql"))
	recordEndsStatement = withResults(sqlFile("record.sql", "other"))
)

func withResults(statement string) string {
	return postgres.Bind(statement, postgres.Value("node", "text"), postgres.Value("time_scale", "float8"),
		resultColumns.As("results"), fateColumns.As("fates"))
}

// recordStatementFor is the shorter statement if it records the group.
func recordStatementFor(group []*recording) string {
	for _, req := range group {
		if req.BatchID != 0 {
			return recordStatement
		}
		switch req.Verdict.Action {
		case policy.Delivered, policy.Drop, Cancel:
		default:
			return recordStatement
		}
	}
	return recordEndsStatement
}

// recordArgs are the parameters of recordStatement.
func (r *Recorder) recordArgs(group []*recording) []any {
	var fates []fateRow
	for _, req := range group {
		for i := range req.Fates {
			fates = append(fates, fateRow{req.JobID, &req.Fates[i]})
		}
	}
	args := make([]any, 0, 2+len(resultColumns)+len(fateColumns))
	return fateColumns.Append(resultColumns.Append(append(args, r.Node, float64(max(r.TimeScale, 1))), group), fates)
}

// resultColumns are the columns of a result.
var resultColumns = postgres.Columns[*recording]{
	postgres.Col("job_id", "bigint", func(q *recording) int64 { return q.JobID }),
	postgres.Col("job_made", "timestamptz", func(q *recording) time.Time { return q.CreatedAt }),
	postgres.NullIntCol("delivery_id", func(q *recording) int64 { return q.DeliveryID }),
	postgres.NullIntCol("batch_id", func(q *recording) int64 { return q.BatchID }),
	postgres.Col("subscription_id", "bigint", func(q *recording) int64 { return q.SubscriptionID }),
	postgres.Col("retry_policy", "text", func(q *recording) string { return q.RetryPolicy }),
	postgres.Col("number", "int", func(q *recording) int { return q.Number }),
	postgres.Col("reruns", "int", func(q *recording) int { return q.Reruns }),
	postgres.NullTimeCol("due_at", func(q *recording) time.Time { return q.DueAt }),
	postgres.NullTextCol("last_hold", func(q *recording) string { return q.LastHold }),
	postgres.NullIntCol("bytes", func(q *recording) int64 { return int64(q.Bytes) }),

	postgres.NullTimeCol("started_at", func(q *recording) time.Time { return q.StartedAt }),
	postgres.Col("duration_us", "bigint", func(q *recording) int64 { return q.Duration.Microseconds() }),
	postgres.NullIntCol("dns_us", func(q *recording) int64 { return q.Timings.DNS.Microseconds() }),
	postgres.NullIntCol("connect_us", func(q *recording) int64 { return q.Timings.Connect.Microseconds() }),
	postgres.NullIntCol("tls_us", func(q *recording) int64 { return q.Timings.TLS.Microseconds() }),
	postgres.NullIntCol("first_byte_us", func(q *recording) int64 { return q.Timings.FirstByte.Microseconds() }),
	postgres.Col("status", "int", func(q *recording) pgtype.Int8 { return postgres.NullInt(int64(q.Status)) }),
	postgres.NullTextCol("outcome", func(q *recording) string { return string(q.Outcome) }),
	postgres.NullTextCol("error", func(q *recording) string { return q.Error }),
	postgres.Col("request_headers", "bytea", func(q *recording) []byte { return q.RequestHeaders }),
	postgres.Col("headers", "bytea", func(q *recording) []byte { return q.ResponseHeaders }),
	postgres.Col("excerpt", "bytea", func(q *recording) []byte { return q.ResponseExcerpt }),

	postgres.Col("verdict", "text", func(q *recording) string { return string(q.Verdict.Action) }),
	postgres.NullTextCol("reason", func(q *recording) string { return string(q.Verdict.Reason) }),
	postgres.NullTimeCol("next_at", func(q *recording) time.Time { return q.Verdict.At }),
	postgres.NullTimeCol("not_before", func(q *recording) time.Time { return q.Verdict.NotBefore }),
	postgres.Col("skipped_offsets", "int", func(q *recording) int { return q.Verdict.SkippedOffsets }),
	postgres.Col("rule", "text", func(q *recording) string { return q.Verdict.Why.String() }),
	postgres.NullIntCol("step_ms", func(q *recording) int64 { return q.Verdict.Why.Step.Milliseconds() }),
	postgres.NullIntCol("floor_ms", func(q *recording) int64 { return q.Verdict.Why.Floor.Milliseconds() }),
	postgres.NullIntCol("jitter_ms", func(q *recording) int64 { return q.Verdict.Why.Jitter.Milliseconds() }),
	postgres.NullIntCol("retry_after_ms", func(q *recording) int64 { return q.Verdict.Why.RetryAfter.Milliseconds() }),
}

// fateRow is the verdict on one delivery of the result that this job's row is the token of.
type fateRow struct {
	jobID int64
	*Fate
}

// fateColumns are the columns of a fate.
var fateColumns = postgres.Columns[fateRow]{
	postgres.Col("job_id", "bigint", func(f fateRow) int64 { return f.jobID }),
	postgres.Col("delivery_id", "bigint", func(f fateRow) int64 { return f.DeliveryID }),
	postgres.Col("verdict", "text", func(f fateRow) string { return string(f.Verdict.Action) }),
	postgres.NullTimeCol("next_at", func(f fateRow) time.Time { return f.Verdict.At }),
	postgres.NullTimeCol("not_before", func(f fateRow) time.Time { return f.Verdict.NotBefore }),
	postgres.Col("reason", "text", func(f fateRow) pgtype.Text {
		if f.Verdict.Action == policy.Retry && f.Verdict.Reason == "" {
			return postgres.NullText(string(ReasonOwnTime))
		}
		return postgres.NullText(string(f.Verdict.Reason))
	}),
	postgres.Col("dead_letter_id", "uuid", func(f fateRow) pgtype.UUID {
		return pgtype.UUID{Bytes: f.deadLetter, Valid: f.deadLetter != uuid.UUID{}}
	}),
}
