package query

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

// Problem is an outcome of failed attempts of one event subscription.
type Problem struct {
	Topic, Subscription, Outcome string
	// Failures is the number of attempts with this outcome, Attempts of all; First and Last are minutes.
	Failures, Attempts int64
	First, Last        time.Time
	DeadLetters        int64 // of the event subscription, with any outcome
	Hold               *string
	HoldUntil          *time.Time // of a probation: when the next probe is sent
	// Waiting is the number of pending deliveries whose last attempt had this outcome, up to 1,000, among the oldest
	// 10,000 pending ones: those with an attempt are older than those without.
	Waiting int
	// Held is the number of deliveries of the event subscription on hold, in batches too, up to 10,000.
	Held int
	// An example: a pending delivery, or else a dead letter, with the response.
	DeliveryID   *int64
	DeadLetterID *uuid.UUID
	Status       *int
	Error        *string
	Answer       *string
	NextAttempt  *time.Time
}

var problemsStatement = sqlFile("problems.sql")

// problemHoursFrom is the shortest span for which sums by the hour are read instead of minutes.
const problemHoursFrom = 6 * time.Hour

// ReadProblems groups the failed attempts of a span by event subscription and outcome, the last failure first, at most
// 100 groups. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadProblems(ctx context.Context, topic string, span time.Duration) ([]Problem, error) {
	return read(ctx, r, "problems", func(tx pgx.Tx) ([]Problem, error) {
		// PostgreSQL needs the time as a value to estimate how few of the counts it reads.
		var from time.Time
		row := tx.QueryRow(ctx, "SELECT now() - make_interval(mins => $1)", int(span/time.Minute))
		if err := row.Scan(&from); err != nil {
			return nil, err
		}
		return postgres.Rows[Problem](ctx, tx, problemsStatement, pgx.NamedArgs{
			"from": from, "hours": span >= problemHoursFrom, "topic": given(topic), "limit": 100,
		})
	})
}
