package delivery

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/internal/postgres"
	"postrider/policy"
)

// Note is the verdict of a late response that changes nothing.
const Note policy.VerdictAction = "note"

var lateStatement = sqlFile("late")

const lateTimeout = 5 * time.Second

// RecordLate stores a response to an attempt that was recorded before as timed out, as a second row of that attempt. If
// the verdict is Delivered, it cancels the retry, unless that runs already; ended reports that the delivery or the
// batch ended so. Any other verdict is only noted. why is the beginning of the line that explains the row.
//
// Best effort, unlike Record: a response that cannot be stored is lost, and the retry is made. Event Grid promises no
// more ("attempts to remove the event from the retry queue on a best effort basis", Microsoft, Event Grid message
// delivery and retry, 2019-05-15).
func (r *Recorder) RecordLate(ctx context.Context, result Result, why string) (ended bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, lateTimeout)
	defer cancel()
	what := "delivery"
	if result.BatchID != 0 {
		what = "batch"
	}
	args := pgx.NamedArgs{
		"delivery": postgres.NullInt(result.DeliveryID), "event": result.FirstEvent,
		"batch": postgres.NullInt(result.BatchID), "batch_created_at": result.BatchCreatedAt,
		"what": what, "job": result.JobID, "subscription": result.SubscriptionID,
		"success": result.Verdict.Action == policy.Delivered, "why": why, "node": r.Node,
		"number": result.Number, "reruns": result.Reruns, "started_at": result.StartedAt,
		"duration_us": result.Duration.Microseconds(), "dns_us": postgres.NullInt(result.Timings.DNS.Microseconds()),
		"connect_us":    postgres.NullInt(result.Timings.Connect.Microseconds()),
		"tls_us":        postgres.NullInt(result.Timings.TLS.Microseconds()),
		"first_byte_us": postgres.NullInt(result.Timings.FirstByte.Microseconds()),
		"status":        postgres.NullInt(int64(result.Status)), "outcome": string(result.Outcome),
		"response_headers": result.ResponseHeaders, "response_excerpt": result.ResponseExcerpt,
	}
	err = postgres.RetryTransient(func() error { return r.DB.QueryRow(ctx, lateStatement, args).Scan(&ended) })
	if err == nil && result.Verdict.Action == policy.Delivered {
		err = r.endProbation(ctx, result.Probation.Key, result.StartedAt)
	}
	if err != nil {
		return ended, fmt.Errorf("record a %s's late response: %w", what, err)
	}
	return ended, nil
}
