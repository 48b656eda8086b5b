package query

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/internal/postgres"
)

// Problem are the failed attempts of one event subscription with one outcome, as a case for operators, and an example
// of them.
type Problem struct {
	// Id of the problem: always the same for an event subscription and an outcome.
	ProblemID uuid.UUID `json:"problemId" column:"Problem id" title:"ID" off:"pages" list:"/v1/problems"`
	// failing: an attempt has failed in the last minute, or none has succeeded since. acknowledged: failing, and an
	// operator knows. recovered: a successful attempt began after the last failure, or none has failed for 24 hours and no
	// pending delivery has this outcome. resolved: an operator ended it, and it has not failed since.
	State        string `json:"state" column:"State"`
	Topic        string `json:"topic" column:"Topic" in:"subscription"`
	Subscription string `json:"subscription" column:"Event subscription" title:"SUBSCRIPTION" class:"long"`
	// HTTP status of the newest such attempt; null without a response.
	Status *int `json:"status" column:"Status" in:"outcome"`
	// Outcome of the attempts, such as Busy.
	Outcome string `json:"outcome" column:"Response" title:"OUTCOME" class:"long wide"`
	// When the first failed attempt began: the first one after the last recovery or resolution.
	Since time.Time `json:"since" column:"Since"`
	// When the last such attempt began; its minute if the attempt is no longer stored.
	Last time.Time `json:"lastFailedAt" column:"Last" title:"LAST FAILED"`
	// Number of attempts with this outcome.
	Failures int64 `json:"failures" column:"Failed attempts" title:"FAILURES" class:"number spare"`
	// Number of all attempts of the event subscription.
	Attempts int64 `json:"attempts" column:"Attempts" in:"failures"`
	// Failed attempts in the last 60 minutes, in 12 steps of 5 minutes, the oldest first.
	RecentFailures []int64 `json:"recentFailures" column:"Last hour" class:"spare" off:"cli"`
	// Percentage of all attempts that were 429, estimated from the newest 200 failures with this outcome. With
	// deliveryRate, postrider keeps to the endpoint's limit.
	ThrottledPercent float64 `json:"throttledPercent" column:"429 %" in:"next_attempt_at"`
	// Beginning of the response to the newest such attempt.
	Response *string `json:"response" column:"Last response" class:"long wide" off:""`
	// Error of the newest such attempt; null with a response.
	Error *string `json:"error" line:"Error"`
	// Hold of the event subscription; null without one.
	Hold *string `json:"hold" column:"Hold" in:"next_attempt_at"`
	// When the next probe of a probation is sent.
	HoldUntil   *time.Time `json:"holdUntil" line:"Hold until"`
	NextAttempt *time.Time `json:"nextAttemptAt" column:"Next" class:"long wide" title:"NEXT ATTEMPT"`
	// DeliveryHold is the hold of those of its deliveries that are on hold.
	DeliveryHold *string `json:"-"`
	// Number of pending deliveries whose last attempt had this outcome, at most 1,000.
	Waiting int `json:"waiting" column:"Waiting" in:"next_attempt_at"`
	// Number of deliveries of the event subscription on hold, at most 10,000.
	Held int `json:"held" line:"On hold"`
	// Number of open dead letters of the event subscription, with any outcome, at most 1,000.
	OpenDeadLetters int `json:"openDeadLetters" column:"Open dead letters" title:"OPEN DEAD LETTERS" class:""`
	// First minute with such an attempt in the time span.
	First time.Time `json:"firstFailedAt" column:"First" off:""`
	// Example, the delivery of the newest such attempt, also after it recovered; a pending one if that attempt is no
	// longer stored. Null for a batch and without one.
	DeliveryID *int64 `json:"deliveryId" column:"Delivery" in:"response"`
	// Example, the batch of the newest such attempt; null for a single event.
	BatchID *int64 `json:"batchId" column:"Batch" in:"response"`
	// The newest dead letter with this outcome; null without one, and if there is a pending delivery.
	DeadLetterID *uuid.UUID `json:"deadLetterId" column:"Dead letter" in:"response"`
	// When a successful attempt began after the last failure, or when 24 hours had passed without one and without such
	// pending deliveries; null if neither.
	RecoveredAt *time.Time `json:"recoveredAt" line:"Recovered"`
	// Until when alerts and notices leave it out; null if it was not acknowledged.
	AcknowledgedUntil *time.Time `json:"acknowledgedUntil" line:"Acknowledged until"`
	// When it was acknowledged.
	AcknowledgedAt *time.Time `json:"acknowledgedAt" line:"Acknowledged"`
	// Who acknowledged it, as in the audit.
	AcknowledgedBy *string `json:"acknowledgedBy" line:"Acknowledged by"`
	// Note of the operator who acknowledged or resolved it.
	Note *string `json:"note" line:"Note"`
	// When an operator resolved it; null if it is not resolved.
	ResolvedAt *time.Time `json:"resolvedAt" line:"Resolved"`
	// Who resolved it, as in the audit.
	ResolvedBy *string `json:"resolvedBy" line:"Resolved by"`
}

// ProblemFilter selects problems; "" = all.
type ProblemFilter struct {
	Topic string `query:"topic" label:"Topic"`
	// State is one of ProblemStates; unresolved selects all but the resolved ones.
	State string `query:"state" label:"State" choices:"problemStates" shown:"unresolved"`
}

// problemsShown is the limit of a list of problems.
const problemsShown = 100

// ReadProblems groups the failed attempts of a span by event subscription and outcome, the last failure first, at most
// 100 groups. Problems that are failing are listed also if they failed before. From 6 hours on it reads the counts by
// the hour instead of by the minute. ErrTooSlow, ErrUnavailable, *postgres.BusyError.
func (r *Reader) ReadProblems(
	ctx context.Context, f ProblemFilter, span time.Duration,
) (found []Problem, err error) {
	return r.readProblems(ctx, f, nil, span)
}

// ProblemSpan is the span of the counts of ReadProblem.
const ProblemSpan = 24 * time.Hour

// ReadProblem reads one problem, with its counts of the last 24 hours. ErrNotFound; the errors of ReadProblems.
func (r *Reader) ReadProblem(ctx context.Context, id uuid.UUID) (*Problem, error) {
	found, err := r.readProblems(ctx, ProblemFilter{}, &id, ProblemSpan)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, postgres.ErrNotFound
	}
	return &found[0], nil
}

func (r *Reader) readProblems(
	ctx context.Context, f ProblemFilter, id *uuid.UUID, span time.Duration,
) (found []Problem, err error) {
	now := r.clock.Now()
	args := pgx.NamedArgs{
		"from": now.Add(-span), "to": now.Add(time.Hour), "hours": span >= 6*time.Hour, "topic": given(f.Topic),
		"state": given(f.State), "id": id, "limit": problemsShown,
	}
	err = r.search(ctx, postgres.ReadTime, "problems", func(r *reading) { found = rows[Problem](r, "problems", args) })
	return found, err
}
