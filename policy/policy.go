// Package policy makes the decisions about deliveries: what a response means, when an attempt is repeated, and when a
// delivery ends and why. It is pure: it reads no clock, opens no connection, writes no log and draws no random number.
// Times and jitter are arguments.
package policy

import (
	"cmp"
	"maps"
	"slices"
)

// Basis says what the times of a retry schedule are counted from. Microsoft's pages list "10 seconds, 30 seconds,
// 1 minute, …" without saying it; users read it both ways, so it is a setting of the policy.
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

// Policy is a retry policy: all that decides how a delivery is attempted and ends. Its JSON is that of the REST API;
// internal/catalog/spec describes each setting. 0 switches an optional rule off.
type Policy struct {
	// Name, 3 to 64 characters.
	Name string `json:"name"`
	// The policy is built in and cannot be changed.
	BuiltIn bool   `json:"builtIn"`
	Source  string `json:"source"` // the page and date of the values, or the policy they were copied from

	AckTimeout Seconds `json:"ackTimeoutInSeconds"` // for the endpoint's response
	// after the send, in which a late success cancels the queued retry; 0 = none
	LateResponseWindow Seconds `json:"lateResponseWindowInSeconds"`

	Basis Basis `json:"basis"`
	// gap: waits after the n-th failed attempt; offset: offsets from the first attempt
	Steps []Seconds `json:"stepsInSeconds"`
	// after the last step: the wait (gap) or the distance of the offsets (offset)
	Tail Seconds `json:"tailInSeconds"`
	// no attempt is made later than this after TimeToLiveSince; 0 = no bound
	RetryWindow    OptionalSeconds `json:"retryWindowInSeconds"`
	JitterFraction float64         `json:"jitterFraction"`     // most jitter, as a fraction of the step
	JitterCap      Seconds         `json:"jitterCapInSeconds"` // most jitter

	Expiry Expiry `json:"expiry"`
	// Limit of attempts, 1 to 1000. Default: 30, of 1 to 30.
	MaxAttempts Range[int] `json:"maxDeliveryAttempts" schema:"Range"`
	// Time to live in minutes, 1 to 43200 (30 days). Default: 1440, of 1 to 1440.
	TTL Range[Minutes] `json:"eventTimeToLiveInMinutes" schema:"Range"`

	// for BehaviorDocumented; no page mentions Retry-After, so no built-in policy sets it
	HonorRetryAfter bool    `json:"honorRetryAfter"`
	RetryAfterCap   Seconds `json:"retryAfterCapInSeconds"` // longest wait that Retry-After can cause; 0 = no bound
	// RetryTransportErrors is for BehaviorDocumented. true: without a response, even a never-retried cell is retried after
	// its MinDelay.
	RetryTransportErrors bool `json:"retryTransportErrors"`

	// for BehaviorDocumented without a destination: DeadLetterNone or DeadLetterRows
	DeadLetterDefault string  `json:"deadLetterDefault"`
	DeadLetterDelay   Seconds `json:"deadLetterDelayInSeconds"` // from the last attempt to the export of the dead letter
	// in which the export to an unavailable location is retried
	DeadLetterExportWindow Seconds `json:"deadLetterExportWindowInSeconds"`

	Batching bool `json:"batching"` // event subscriptions may set more than one event per request
	// The circuit breaker for failing endpoints. Default: as in ga-2021.
	Probation Probation `json:"probation"`
	Cells     []Cell    `json:"statusTable"` // exact conditions and, for each kind of endpoint, "other"

	scale int // the divisor of Scaled; 0 or 1 = none
}

// Range is the range of a limit of event subscriptions, and its default.
type Range[T ~int | ~int64] struct {
	// Limit of an event subscription that sets none. For attempts, null and 0 mean no limit.
	Default T `json:"default" required:"false" nullable:"true"`
	// Lowest limit that an event subscription may set.
	Least T `json:"least" required:"false" nullable:"true"`
	// Highest limit that an event subscription may set.
	Most T `json:"most" required:"false" nullable:"true"`
}

// Cell is what a response of the endpoint leads to.
//
// It is one entry of a policy's status table.
type Cell struct {
	// webhook or azure-resource.
	EndpointKind EndpointKind `json:"endpointKind"`
	// HTTP status (200 to 599), an error without a response, a broker's response, or other. Errors are timeout, canceled,
	// socket, dns, unauthorized and argument; a broker's responses are full, disabled and session. Each kind of endpoint
	// must have other.
	Condition string `json:"condition"`
	// success (of 200 to 299 only), retry, never, or never_if_dead_letter: never if dead letters are kept, otherwise
	// retry.
	Action Action `json:"action"`
	// Shortest delay of a retry after the failure.
	MinDelay Seconds `json:"minDelayInSeconds" required:"false" nullable:"true"`
}

// ProbationScope says which deliveries a probation holds.
type ProbationScope string

// The scopes of probation.
const (
	ProbationNone              ProbationScope = "none"
	ProbationEndpoint          ProbationScope = "endpoint"           // all event subscriptions with the same endpoint URL
	ProbationEventSubscription ProbationScope = "event_subscription" // one event subscription
	// two rules: Trigger, First and Max for the endpoint; ByOutcome, from the first failure, for the event subscription
	ProbationBoth ProbationScope = "both"
)

// ProbationAction says what happens to a delivery that is due during probation.
type ProbationAction string

// The actions of probation.
const (
	ProbationHold ProbationAction = "hold" // it waits until the probation ends
	// as the page says, it may be dead-lettered or dropped without an attempt
	ProbationDocumented ProbationAction = "documented"
)

// Probation is the circuit breaker for failing endpoints.
//
// It decides when deliveries are held because an endpoint keeps failing.
type Probation struct {
	Scope   ProbationScope  `json:"scope"`
	Trigger int             `json:"trigger"`        // consecutive failures of different events that start it
	First   Seconds         `json:"firstInSeconds"` // first hold; doubled each time the probe fails
	Max     Seconds         `json:"maxInSeconds"`   // longest hold
	Action  ProbationAction `json:"action"`         // under ProbationBoth, of the event subscription's rule
	// instead of First and Max, except under ProbationBoth; other outcomes start none
	ByOutcome Holds `json:"byOutcome"`
	// endpointFailuresOnly is no setting: Resolve sets it for BehaviorSafe. Without ByOutcome, only failures that concern
	// the endpoint then count.
	endpointFailuresOnly bool
}

// Holds are the durations of probations by the outcome of the failure.
type Holds map[Outcome]Seconds

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

// Clone returns a copy that shares no slice or map with p. Its lists are not nil, which JSON would show as null.
func (p *Policy) Clone() Policy {
	c := *p
	c.Steps = append([]Seconds{}, p.Steps...)
	c.Cells = append([]Cell{}, p.Cells...)
	c.Probation.ByOutcome = maps.Clone(p.Probation.ByOutcome)
	return c
}

// SortCells orders the status table: webhooks before Azure resources; statuses, then "other", then errors.
func (p *Policy) SortCells() {
	class := func(condition string) int {
		if condition == conditionOther {
			return 1
		}
		if condition < ":" { // a digit
			return 0
		}
		return 2
	}
	slices.SortStableFunc(p.Cells, func(x, y Cell) int {
		return cmp.Or(
			-cmp.Compare(x.EndpointKind, y.EndpointKind),
			cmp.Compare(class(x.Condition), class(y.Condition)),
			cmp.Compare(x.Condition, y.Condition),
		)
	})
}
