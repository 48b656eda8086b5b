package queue

import (
	"time"

	"postrider/catalog"
	"postrider/event"
	"postrider/policy"

	"github.com/google/uuid"
)

// Work is a delivery that is due, with the event's body.
type Work struct {
	DeliveryID     int64
	SubscriptionID int64
	JobID          *int64
	SystemID       uuid.UUID
	Attempts       int
	SkippedMarks   int
	OwedSince      time.Time
	NextAttemptAt  time.Time
	// NotBefore is the time requested for the attempt, if NextAttemptAt is sooner and was to end the delivery; see
	// policy.PutOff.
	NotBefore      *time.Time
	FirstAttemptAt *time.Time
	Event          event.Event
	// Hold is why the event subscription's deliveries must not be attempted now; "" if they may. TimeToLiveStopped: their
	// time to live does not pass meanwhile.
	Hold              string
	TimeToLiveStopped bool
	// LastHold is the hold that this attempt waited for; "" for none.
	LastHold string
	// Rest is the probation that the policy provides for, and its state.
	Rest Rest
	// EventMissing: the event's row is gone, though no partition with unfinished deliveries is ever dropped; or it was
	// erased when the delivery was created.
	EventMissing bool

	Old      bool      // the event is of another day than those that were read
	AsOf     time.Time // when reading the holds began, on the process's monotonic clock
	ReadAt   time.Time // database clock
	LoadedAt time.Time // the same moment on the process's monotonic clock
	// Free releases the memory of the body; nil = none was taken.
	Free func()
}

// Now is the database's time, continued by the process's monotonic clock: the process's wall clock may be an hour off.
func (w *Work) Now() time.Time { return w.ReadAt.Add(time.Since(w.LoadedAt)) }

// Fresh reports whether the attempt may begin with this Work. Otherwise the delivery is to be loaded again.
func (w *Work) Fresh() bool { return time.Since(w.AsOf) < catalog.HoldVisibleAfter }

// Release releases the memory of the body; call it when the request is over.
func (w *Work) Release() {
	if w.Free != nil {
		w.Free()
	}
}

// Rest is the probation that applies to a delivery, and its state when the delivery was read.
type Rest struct {
	// Policy and EndpointBaseURL are nil and "" if the policy has no probation.
	Policy          *policy.Policy
	EndpointBaseURL string
	// Failing: a failure since the last success. Held: deliveries wait. Probe: this delivery may be attempted all the same.
	Failing, Held, Probe bool
	// Met is what started the hold: the result of the last failure that counted.
	Met policy.Result

	Key string
}

// RestOf is the probation that applies to an event subscription's deliveries, without its state.
func RestOf(c *catalog.Catalogue, subscription int64) Rest {
	sub, ok := c.Subscription(subscription)
	if !ok {
		return Rest{}
	}
	key := c.RestKey(sub)
	if key == nil {
		return Rest{}
	}
	rules, _ := c.Rules(subscription)
	return Rest{Policy: rules.Policy, EndpointBaseURL: sub.EndpointBaseURL, Key: string(key)}
}

// RestRow is what an attempt needs to know of a probation.
type RestRow struct {
	Held      bool
	Probe     int64
	Condition string
}

// SetRest sets the probation of the work from the rows found. A pause or a missing validation goes first.
func (w *Work) SetRest(rest Rest, found map[string]RestRow, jobID int64) {
	row, failing := found[rest.Key]
	rest.Failing, rest.Held, rest.Probe = failing, row.Held, row.Held && row.Probe == jobID
	rest.Met = policy.ParseResult(row.Condition)
	w.Rest = rest
	if w.Hold == "" && rest.Held && !rest.Probe {
		w.Hold = catalog.HoldProbation
	}
}
