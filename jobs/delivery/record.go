package delivery

import (
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"postrider/policy"
	"postrider/postgres"
)

// T3, for any group of results and for the most frequent ones: see record.sql. $1 is the node, $2 the time scale.
var (
	recordStatement     = withResults(sqlFile("record.sql"))
	recordEndsStatement = withResults(sqlFile("record.sql", "other"))
)

func withResults(statement string) string {
	return strings.NewReplacer(
		"@node", "$1::text", "@time_scale", "$2::float8",
		"@results", resultColumns.table("r", 3), "@fates", fateColumns.table("f", 3+len(resultColumns)),
	).Replace(statement)
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
			fates = append(fates, fateRow{req.JobID, &req.Fates[i], req.deadLetters[i]})
		}
	}
	args := make([]any, 0, 2+len(resultColumns)+len(fateColumns))
	return fateColumns.append(resultColumns.append(append(args, r.Node, float64(max(r.TimeScale, 1))), group), fates)
}

// resultColumns are the columns of a result.
var resultColumns = parameters[*recording]{
	param("job_id", "bigint", func(q *recording) int64 { return q.JobID }),
	param("job_made", "timestamptz", func(q *recording) time.Time { return q.CreatedAt }),
	param("delivery_id", "bigint", func(q *recording) pgtype.Int8 { return postgres.NullInt(q.DeliveryID) }),
	param("batch_id", "bigint", func(q *recording) pgtype.Int8 { return postgres.NullInt(q.BatchID) }),
	param("subscription_id", "bigint", func(q *recording) int64 { return q.SubscriptionID }),
	param("retry_policy", "text", func(q *recording) string { return q.RetryPolicy }),
	param("number", "int", func(q *recording) int { return q.Number }),
	param("reruns", "int", func(q *recording) int { return q.Reruns }),
	param("due_at", "timestamptz", func(q *recording) pgtype.Timestamptz { return postgres.NullTime(q.DueAt) }),
	param("last_hold", "text", func(q *recording) pgtype.Text { return postgres.NullText(q.LastHold) }),
	param("bytes", "bigint", func(q *recording) pgtype.Int8 { return postgres.NullInt(int64(q.Bytes)) }),

	param("started_at", "timestamptz", func(q *recording) pgtype.Timestamptz { return postgres.NullTime(q.StartedAt) }),
	param("duration_us", "bigint", func(q *recording) int64 { return q.Duration.Microseconds() }),
	param("dns_us", "bigint", func(q *recording) pgtype.Int8 { return postgres.NullInt(q.Timings.DNS.Microseconds()) }),
	param("connect_us", "bigint",
		func(q *recording) pgtype.Int8 { return postgres.NullInt(q.Timings.Connect.Microseconds()) }),
	param("tls_us", "bigint", func(q *recording) pgtype.Int8 { return postgres.NullInt(q.Timings.TLS.Microseconds()) }),
	param("first_byte_us", "bigint",
		func(q *recording) pgtype.Int8 { return postgres.NullInt(q.Timings.FirstByte.Microseconds()) }),
	param("status", "int", func(q *recording) pgtype.Int8 { return postgres.NullInt(int64(q.Status)) }),
	param("outcome", "text", func(q *recording) pgtype.Text { return postgres.NullText(string(q.Outcome)) }),
	param("error", "text", func(q *recording) pgtype.Text { return postgres.NullText(q.Error) }),
	param("request_headers", "bytea", func(q *recording) []byte { return q.RequestHeaders }),
	param("headers", "bytea", func(q *recording) []byte { return q.ResponseHeaders }),
	param("excerpt", "bytea", func(q *recording) []byte { return q.ResponseExcerpt }),

	param("verdict", "text", func(q *recording) string { return string(q.Verdict.Action) }),
	param("reason", "text", func(q *recording) pgtype.Text { return postgres.NullText(string(q.Verdict.Reason)) }),
	param("next_at", "timestamptz", func(q *recording) pgtype.Timestamptz { return postgres.NullTime(q.Verdict.At) }),
	param("not_before", "timestamptz",
		func(q *recording) pgtype.Timestamptz { return postgres.NullTime(q.Verdict.NotBefore) }),
	param("skipped_marks", "int", func(q *recording) int { return q.Verdict.SkippedMarks }),
	param("rule", "text", func(q *recording) string { return q.Verdict.Why.String() }),
	param("step_ms", "bigint",
		func(q *recording) pgtype.Int8 { return postgres.NullInt(q.Verdict.Why.Step.Milliseconds()) }),
	param("floor_ms", "bigint",
		func(q *recording) pgtype.Int8 { return postgres.NullInt(q.Verdict.Why.Floor.Milliseconds()) }),
	param("jitter_ms", "bigint",
		func(q *recording) pgtype.Int8 { return postgres.NullInt(q.Verdict.Why.Jitter.Milliseconds()) }),
	param("retry_after_ms", "bigint", func(q *recording) pgtype.Int8 {
		return postgres.NullInt(q.Verdict.Why.RetryAfter.Milliseconds())
	}),
}

// fateRow is the verdict on one delivery of the result that this job's row is the token of.
type fateRow struct {
	jobID int64
	*Fate
	deadLetter uuid.UUID
}

// fateColumns are the columns of a fate.
var fateColumns = parameters[fateRow]{
	param("job_id", "bigint", func(f fateRow) int64 { return f.jobID }),
	param("delivery_id", "bigint", func(f fateRow) int64 { return f.DeliveryID }),
	param("verdict", "text", func(f fateRow) string { return string(f.Verdict.Action) }),
	param("next_at", "timestamptz", func(f fateRow) pgtype.Timestamptz { return postgres.NullTime(f.Verdict.At) }),
	param("not_before", "timestamptz",
		func(f fateRow) pgtype.Timestamptz { return postgres.NullTime(f.Verdict.NotBefore) }),
	param("reason", "text", func(f fateRow) pgtype.Text {
		if f.Verdict.Action == policy.Retry && f.Verdict.Reason == "" {
			return postgres.NullText(string(ReasonOwnTime))
		}
		return postgres.NullText(string(f.Verdict.Reason))
	}),
	param("dead_letter_id", "uuid", func(f fateRow) pgtype.UUID {
		return pgtype.UUID{Bytes: f.deadLetter, Valid: f.deadLetter != uuid.UUID{}}
	}),
}
