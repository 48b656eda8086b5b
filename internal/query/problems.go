package query

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/internal/postgres"
)

// Problem is an outcome of failed attempts of one event subscription.
type Problem struct {
	Topic        string `json:"topic"`
	Subscription string `json:"subscription"`
	Outcome      string `json:"outcome"`
	// Failures is the number of attempts with this outcome, Attempts of all; First and Last are minutes.
	Failures    int64      `json:"failures"`
	Attempts    int64      `json:"attempts"`
	First       time.Time  `json:"firstFailedAt"`
	Last        time.Time  `json:"lastFailedAt"`
	DeadLetters int64      `json:"deadLetters"` // of the event subscription, with any outcome
	Hold        *string    `json:"hold"`
	HoldUntil   *time.Time `json:"holdUntil"` // of a probation: when the next probe is sent
	// ThrottledPercent is how many percent of all attempts were 429, as many as of the newest 1,000 failures with this
	// outcome: deliveryRate keeps to the endpoint's limit.
	ThrottledPercent float64 `json:"throttledPercent"`
	// DeliveryHold is the hold of those of its deliveries that are on hold; nil if it was deleted.
	DeliveryHold *string `json:"-"`
	// Waiting is the number of pending deliveries whose last attempt had this outcome, up to 1,000, among the oldest
	// 10,000 pending ones: those with an attempt are older than those without.
	Waiting int `json:"waiting"`
	// Held is the number of deliveries of the event subscription on hold, in batches too, up to 10,000.
	Held int `json:"held"`
	// An example: the newest failed attempt, of a delivery or a batch, with the response. If it is no longer stored, a
	// pending delivery, or else a dead letter. DeadLetterID is nil while a delivery with this outcome is pending.
	DeliveryID   *int64     `json:"deliveryId"`
	BatchID      *int64     `json:"batchId"`
	DeadLetterID *uuid.UUID `json:"deadLetterId"`
	Status       *int       `json:"status"`
	Error        *string    `json:"error"`
	Response     *string    `json:"response"`
	NextAttempt  *time.Time `json:"nextAttemptAt"`
}

// ReadProblems groups the failed attempts of a span by event subscription and outcome, the last failure first, at most
// 100 groups. From 6 hours on it reads the counts by the hour instead of by the minute. ErrTooSlow, ErrUnavailable,
// *postgres.BusyError.
func (r *Reader) ReadProblems(ctx context.Context, topic string, span time.Duration) (found []Problem, err error) {
	args := pgx.NamedArgs{
		"from": r.clock.Now().Add(-span), "hours": span >= 6*time.Hour, "topic": given(topic), "limit": 100,
	}
	err = r.search(ctx, postgres.ReadTime, "problems", func(r *reading) { found = rows[Problem](r, "problems", args) })
	return found, err
}
