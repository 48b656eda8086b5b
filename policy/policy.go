// Package policy makes the decisions about deliveries: what a response means, when an attempt is repeated, and when a
// delivery ends and why. It is pure: it reads no clock, opens no connection, writes no log and draws no random number.
// Times and jitter are arguments.
package policy

import (
	"maps"
	"slices"
	"time"
)

// Basis says what the times of a retry schedule are counted from. Microsoft's pages list "10 seconds, 30 seconds,
// 1 minute, …" without saying it; users read it both ways, so it is a column of the policy.
type Basis string

// The two readings of a retry schedule.
const (
	BasisGap    Basis = "gap"    // a step is the wait after the failed attempt
	BasisOffset Basis = "offset" // a step is an offset from the first attempt
)

// Expiry says when a delivery ends whose time to live has passed.
type Expiry string

// The two ways to expire.
const (
	ExpiryAtTTL       Expiry = "at_ttl"       // at that time, even while the delivery waits
	ExpiryNextAttempt Expiry = "next_attempt" // when its next attempt is due, which is not made
)

// Action is what a cell of the status table does.
type Action string

// The actions of a cell.
const (
	ActionSuccess Action = "success" // the event is delivered
	ActionRetry   Action = "retry"   // retried on the schedule, but at least the cell's MinDelay after the failure
	ActionNever   Action = "never"   // never retried: the delivery ends
	// never retried if there is a dead-letter destination, otherwise retried
	ActionNeverIfDeadLetter Action = "never_if_dead_letter"
)

// conditionOther is the condition of all statuses and errors without a cell.
const conditionOther = "other"

// DefaultName is the retry policy of an event subscription that names none.
const DefaultName = "ga-2021"

// Values of Policy.DeadLetterDefault.
const (
	DeadLetterNone = "none" // an event that cannot be delivered is dropped
	DeadLetterRows = "rows" // it becomes a dead letter
)

// Policy is one row of retry_policies with its cells: all that decides how a delivery is attempted and ends. 0 switches
// an optional rule off.
type Policy struct {
	Name    string
	Source  string // the page and date of the values, or the policy they were copied from
	BuiltIn bool

	AckTimeout         time.Duration // for the endpoint's response
	LateResponseWindow time.Duration // after the send, in which a late success cancels the queued retry; 0 = none

	Basis          Basis
	Steps          []time.Duration // gap: waits after the n-th failed attempt; offset: offsets from the first attempt
	Tail           time.Duration   // after the last step: the wait (gap) or the distance of the offsets (offset)
	RetryWindow    time.Duration   // no attempt is made later than this after TimeToLiveSince; 0 = no bound
	JitterFraction float64         // most jitter, as a fraction of the step
	JitterCap      time.Duration   // most jitter

	Expiry         Expiry
	DefaultTTL     time.Duration // time to live of event subscriptions that set none
	MinTTL, MaxTTL time.Duration // range of what they may set, in whole minutes

	DefaultMaxAttempts             int // limit of event subscriptions that set none; 0 = no limit
	MinMaxAttempts, MaxMaxAttempts int // range of what they may set

	HonorRetryAfter bool          // for BehaviorDocumented; no page mentions Retry-After, so no built-in policy sets it
	RetryAfterCap   time.Duration // longest wait that Retry-After can cause; 0 = no bound
	// RetryTransportErrors is for BehaviorDocumented. true: without a response, even a never-retried cell is retried after
	// its MinDelay.
	RetryTransportErrors bool

	// for BehaviorDocumented without a destination: DeadLetterNone or DeadLetterRows
	DeadLetterDefault      string
	DeadLetterDelay        time.Duration // from the last attempt to the export of the dead letter
	DeadLetterExportWindow time.Duration // in which the export to an unavailable location is retried

	Batching  bool // event subscriptions may set more than one event per request
	Probation Probation
	Cells     []Cell // exact conditions and, for each kind of endpoint, "other"

	scale int // the divisor of Scaled; 0 or 1 = none
}

// Cell is one entry of a policy's status table.
type Cell struct {
	EndpointKind EndpointKind
	Condition    string // "200" … "599", "other", or an ErrorKind
	Action       Action
	MinDelay     time.Duration // a retry is made at least this long after the failure
}

// ProbationScope says which deliveries a probation holds.
type ProbationScope string

// The scopes of probation.
const (
	ProbationNone              ProbationScope = "none"
	ProbationEndpoint          ProbationScope = "endpoint"           // all event subscriptions with the same endpoint URL
	ProbationEventSubscription ProbationScope = "event_subscription" // one event subscription
)

// ProbationAction says what happens to a delivery that is due during probation.
type ProbationAction string

// The actions of probation.
const (
	ProbationHold ProbationAction = "hold" // it waits until the probation ends
	// as the page says, it may be dead-lettered or dropped without an attempt
	ProbationDocumented ProbationAction = "documented"
)

// Probation is the rule of the circuit breaker: when deliveries are held because an endpoint keeps failing.
type Probation struct {
	Scope     ProbationScope
	Trigger   int                       // consecutive failures of different events that start it
	First     time.Duration             // first hold; doubled each time the probe fails
	Max       time.Duration             // longest hold
	ByOutcome map[Outcome]time.Duration // holds by outcome instead; other outcomes start none
	Action    ProbationAction
	// endpointFailuresOnly is no column: Resolve sets it for BehaviorSafe. Without ByOutcome, only failures that concern
	// the endpoint then count.
	endpointFailuresOnly bool
}

// Cell returns the entry for r at an endpoint of this kind: the exact status or error, otherwise "other". A policy
// without "other" retries on its schedule, which loses no event; Mistakes rejects such a policy.
func (p *Policy) Cell(kind EndpointKind, r Result) Cell {
	var buf [20]byte
	condition := r.appendTo(buf[:0])
	found := Cell{EndpointKind: kind, Condition: conditionOther, Action: ActionRetry}
	for i := range p.Cells {
		switch c := &p.Cells[i]; {
		case c.EndpointKind != kind:
		case c.Condition == string(condition):
			return *c
		case c.Condition == conditionOther:
			found = *c
		}
	}
	return found
}

// Clone returns a copy that shares no slice or map with p.
func (p *Policy) Clone() Policy {
	c := *p
	c.Steps = slices.Clone(p.Steps)
	c.Cells = slices.Clone(p.Cells)
	c.Probation.ByOutcome = maps.Clone(p.Probation.ByOutcome)
	return c
}
