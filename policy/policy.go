package policy

import (
	"slices"
	"time"
)

// Basis says what the numbers of a retry schedule are measured from. Microsoft's pages list "10 seconds, 30 seconds,
// 1 minute, …" and leave it open; both readings exist among users, so it is a column of the policy.
type Basis string

// The two readings of a retry schedule.
const (
	BasisGap    Basis = "gap"    // a step is the wait after the failed attempt
	BasisOffset Basis = "offset" // a step is a mark, measured from the first attempt
)

// Expiry says when a delivery whose time to live has passed is ended.
type Expiry string

// The two ways to expire.
const (
	ExpiryAtTTL       Expiry = "at_ttl"       // at the moment itself, also while the delivery waits
	ExpiryNextAttempt Expiry = "next_attempt" // at the next scheduled attempt, which is then not made
)

// Action is what a cell of the status table asks for.
type Action string

// The actions of a cell.
const (
	ActionSuccess Action = "success" // the event is delivered
	ActionRetry   Action = "retry"   // on the retry schedule, no sooner than the cell's MinDelay
	ActionNever   Action = "never"   // never retried: the delivery ends
	// never retried where a dead-letter destination is set, else retried
	ActionNeverIfDeadLetter Action = "never_if_dead_letter"
)

// Conditions that are words. Errors use the spelling of ErrorKind, exact statuses are "200" to "599".
const conditionOther = "other"

// DefaultName is the retry policy of an event subscription that names none.
const DefaultName = "ga-2021"

// Values of Policy.DeadLetterDefault.
const (
	DeadLetterNone = "none" // an event that cannot be delivered is dropped
	DeadLetterRows = "rows" // it becomes a row
)

// Policy is one row of retry_policies with its cells: everything that decides a delivery's course. The zero value of
// an optional field switches its rule off.
type Policy struct {
	Name    string
	Source  string // the page and date the values were taken from, or the policy they were copied from
	BuiltIn bool

	AckTimeout         time.Duration // how long an endpoint may take to answer
	LateResponseWindow time.Duration // how long after the send a success still cancels the queued retry; 0 = not at all

	Basis          Basis
	Steps          []time.Duration // gap: waits after the n-th failed attempt; offset: marks after the first attempt
	Tail           time.Duration   // once the steps are used up: the wait (gap) or the distance of marks (offset)
	RetryWindow    time.Duration   // no mark later than this after the event was owed; 0 = no such bound
	JitterFraction float64         // of the step, added at most
	JitterCap      time.Duration   // no jitter longer than this

	Expiry         Expiry
	DefaultTTL     time.Duration // time to live of an event subscription that sets none
	MinTTL, MaxTTL time.Duration // range of what one may set, in whole minutes

	DefaultMaxAttempts             int // attempts of an event subscription that sets none; 0 = no limit
	MinMaxAttempts, MaxMaxAttempts int // range of what one may set

	HonorRetryAfter bool          // for BehaviorDocumented; no page mentions Retry-After, so no built-in policy sets it
	RetryAfterCap   time.Duration // no wait for Retry-After is longer than this; 0 = no such bound
	// RetryTransportErrors is for BehaviorDocumented. true: where there is no response, even a never-retried cell is
	// retried after its MinDelay.
	RetryTransportErrors bool

	// for BehaviorDocumented, where no destination is set: DeadLetterNone or DeadLetterRows
	DeadLetterDefault      string
	DeadLetterDelay        time.Duration // from the last attempt to the dead letter's export
	DeadLetterExportWindow time.Duration // how long an unavailable destination is tried

	Batching  bool // may an event subscription ask for more than one event per call?
	Probation Probation
	Cells     []Cell // exact conditions and, for each kind of endpoint, "other"

	scale int // by which Scaled divided its waits; 0 or 1 = none
}

// Cell is one entry of a policy's status table.
type Cell struct {
	EndpointKind EndpointKind
	Condition    string // "200" … "599", "other", or an ErrorKind
	Action       Action
	MinDelay     time.Duration // a retry comes no sooner than this after the failure, whatever the schedule says
}

// ProbationScope says what one failing call holds back.
type ProbationScope string

// The scopes of probation.
const (
	ProbationNone              ProbationScope = "none"
	ProbationEndpoint          ProbationScope = "endpoint"           // every event subscription with the same endpoint URL
	ProbationEventSubscription ProbationScope = "event_subscription" // this one
)

// ProbationAction says what becomes of an event whose turn comes during probation.
type ProbationAction string

// The actions of probation.
const (
	ProbationHold ProbationAction = "hold" // it waits until the probation is over
	// as the page says, it may be dead-lettered or dropped without an attempt
	ProbationDocumented ProbationAction = "documented"
)

// Probation describes when deliveries are held back because an endpoint keeps failing.
type Probation struct {
	Scope     ProbationScope
	Trigger   int                       // failures of different events in a row that start it
	First     time.Duration             // first hold; doubled each time the probe fails
	Max       time.Duration             // longest hold
	ByOutcome map[Outcome]time.Duration // holds that depend on the cause instead; other outcomes start none
	Action    ProbationAction
	// No column: Resolve sets it for BehaviorSafe. Without ByOutcome, only failures that say something about the endpoint
	// count.
	endpointFailuresOnly bool
}

// Cell returns the entry that answers r at an endpoint of this kind: the exact status or error, else "other". A policy
// without "other" retries on its schedule, the only reading that loses nothing; Validate refuses such a policy.
func (p *Policy) Cell(kind EndpointKind, r Result) Cell {
	var buf [20]byte
	condition := r.appendTo(buf[:0])
	answer := Cell{EndpointKind: kind, Condition: conditionOther, Action: ActionRetry}
	for i := range p.Cells {
		switch c := &p.Cells[i]; {
		case c.EndpointKind != kind:
		case c.Condition == string(condition):
			return *c
		case c.Condition == conditionOther:
			answer = *c
		}
	}
	return answer
}

// Clone returns a copy that shares no slice or map with p. A policy of one's own starts as the clone of a built-in one.
func (p *Policy) Clone() Policy {
	c := *p
	c.Steps = slices.Clone(p.Steps)
	c.Cells = slices.Clone(p.Cells)
	if p.Probation.ByOutcome != nil {
		c.Probation.ByOutcome = make(map[Outcome]time.Duration, len(p.Probation.ByOutcome))
		for outcome, hold := range p.Probation.ByOutcome {
			c.Probation.ByOutcome[outcome] = hold
		}
	}
	return c
}
