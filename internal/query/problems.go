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
	Topic        string `json:"topic" column:"Topic" in:"subscription" list:"/v1/problems"`
	Subscription string `json:"subscription" column:"Event subscription" title:"SUBSCRIPTION" class:"long"`
	// Outcome of the attempts, such as Busy.
	Outcome string `json:"outcome" column:"Outcome"`
	// HTTP status of the newest such attempt; null without a response.
	Status *int `json:"status" column:"Status" in:"outcome"`
	// Number of attempts with this outcome.
	Failures int64 `json:"failures" column:"Failed attempts" title:"FAILURES"`
	// Number of all attempts of the event subscription.
	Attempts int64 `json:"attempts" column:"Attempts" in:"failures"`
	// Percentage of all attempts that were 429, estimated from the newest 1,000 failures with this outcome. With
	// deliveryRate, postrider keeps to the endpoint's limit.
	ThrottledPercent float64 `json:"throttledPercent" column:"429 %" in:"next_attempt_at"`
	// Last minute with such an attempt.
	Last time.Time `json:"lastFailedAt" column:"Last" title:"LAST FAILED"`
	// Beginning of the response to the newest such attempt.
	Response *string `json:"response" column:"Last response" class:"long wide" off:"cli"`
	// Error of the newest such attempt; null with a response.
	Error *string `json:"error"`
	// Hold of the event subscription; null without one.
	Hold *string `json:"hold" column:"Hold" in:"next_attempt_at"`
	// When the next probe of a probation is sent.
	HoldUntil   *time.Time `json:"holdUntil"`
	NextAttempt *time.Time `json:"nextAttemptAt" column:"Next" class:"long" title:"NEXT ATTEMPT"`
	// DeliveryHold is the hold of those of its deliveries that are on hold; nil if it was deleted.
	DeliveryHold *string `json:"-"`
	// Number of pending deliveries whose last attempt had this outcome, at most 1,000.
	Waiting int `json:"waiting"`
	// Number of deliveries of the event subscription on hold, at most 10,000.
	Held int `json:"held"`
	// Number of dead letters of the event subscription, with any outcome.
	DeadLetters int64 `json:"deadLetters" column:"Dead letters" class:""`
	// First minute with such an attempt.
	First time.Time `json:"firstFailedAt" column:"First" off:""`
	// Example, the delivery of the newest such attempt, also after it recovered; a pending one if that attempt is no
	// longer stored. Null for a batch and without one.
	DeliveryID *int64 `json:"deliveryId" column:"Delivery" in:"response"`
	// Example, the batch of the newest such attempt; null for a single event.
	BatchID *int64 `json:"batchId" column:"Batch" in:"response"`
	// The newest dead letter with this outcome; null without one, and if there is a pending delivery.
	DeadLetterID *uuid.UUID `json:"deadLetterId" column:"Dead letter" in:"response"`
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
