package query

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/internal/postgres"
)

// Problem are the failed attempts of one event subscription with one outcome, and an example of them.
type Problem struct {
	Topic        string `json:"topic"`
	Subscription string `json:"subscription"`
	// Outcome of the attempts, such as Busy.
	Outcome string `json:"outcome"`
	// Number of attempts with this outcome.
	Failures int64 `json:"failures"`
	// Number of all attempts of the event subscription.
	Attempts int64 `json:"attempts"`
	// First minute with such an attempt.
	First time.Time `json:"firstFailedAt"`
	// Last minute with such an attempt.
	Last time.Time `json:"lastFailedAt"`
	// Number of dead letters of the event subscription, with any outcome.
	DeadLetters int64 `json:"deadLetters"` // of the event subscription, with any outcome
	// Hold of the event subscription; null without one.
	Hold      *string    `json:"hold"`
	HoldUntil *time.Time `json:"holdUntil"` // of a probation: when the next probe is sent
	// Percentage of all attempts that were 429, estimated from the newest 1,000 failures with this outcome. With
	// deliveryRate, postrider keeps to the endpoint's limit.
	ThrottledPercent float64 `json:"throttledPercent"`
	// DeliveryHold is the hold of those of its deliveries that are on hold; nil if it was deleted.
	DeliveryHold *string `json:"-"`
	// Number of pending deliveries whose last attempt had this outcome, at most 1,000.
	Waiting int `json:"waiting"`
	// Number of deliveries of the event subscription on hold, at most 10,000.
	Held int `json:"held"`
	// Example, the delivery of the newest such attempt, also after it recovered; a pending one if that attempt is no
	// longer stored. Null for a batch and without one.
	DeliveryID *int64 `json:"deliveryId"`
	// Example, the batch of the newest such attempt; null for a single event.
	BatchID *int64 `json:"batchId"`
	// The newest dead letter with this outcome; null without one, and if there is a pending delivery.
	DeadLetterID *uuid.UUID `json:"deadLetterId"`
	// HTTP status of the newest such attempt; null without a response.
	Status *int `json:"status"`
	// Error of the newest such attempt; null with a response.
	Error *string `json:"error"`
	// Beginning of the response to the newest such attempt.
	Response    *string    `json:"response"`
	NextAttempt *time.Time `json:"nextAttemptAt"`
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
