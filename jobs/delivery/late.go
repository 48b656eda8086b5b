package delivery

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/internal/postgres"
)

var lateStatement = sqlFile("late")

const lateTimeout = 5 * time.Second

// RecordLate stores a late response as a second row of its attempt. A success cancels the retry, unless that runs
// already; ended reports that the delivery or the batch ended so. Any other response is only noted.
//
// Best effort, unlike Record: a response that cannot be stored is lost, and the retry is made. Event Grid promises no
// more ("attempts to remove the event from the retry queue on a best effort basis", Microsoft, Event Grid message
// delivery and retry, 2019-05-15).
func (r *Recorder) RecordLate(ctx context.Context, late Late) (ended bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, lateTimeout)
	defer cancel()
	what := "delivery"
	if late.BatchID != 0 {
		what = "batch"
	}
	args := pgx.NamedArgs{
		"delivery": postgres.NullInt(late.DeliveryID), "event": late.FirstEvent,
		"batch": postgres.NullInt(late.BatchID), "batch_created_at": late.BatchCreatedAt,
		"what": what, "job": late.JobID, "subscription": late.SubscriptionID,
		"success": late.Success, "why": late.Why, "node": r.Node,
		"number": late.Number, "reruns": late.Reruns, "started_at": late.StartedAt,
		"duration_us": late.Duration.Microseconds(), "dns_us": postgres.NullInt(late.Timings.DNS.Microseconds()),
		"connect_us":    postgres.NullInt(late.Timings.Connect.Microseconds()),
		"tls_us":        postgres.NullInt(late.Timings.TLS.Microseconds()),
		"first_byte_us": postgres.NullInt(late.Timings.FirstByte.Microseconds()),
		"status":        postgres.NullInt(int64(late.Status)), "outcome": string(late.Outcome),
		"response_headers": late.ResponseHeaders, "response_excerpt": late.ResponseExcerpt,
	}
	err = postgres.RetryTransient(func() error { return r.DB.QueryRow(ctx, lateStatement, args).Scan(&ended) })
	if err != nil {
		return false, fmt.Errorf("record a %s's late response: %w", what, err)
	}
	if !late.Success {
		return ended, nil
	}
	return ended, r.endProbations(ctx, late.Probations, late.StartedAt)
}
