package policy

import "time"

// Behavior says how literally an event subscription takes its retry policy.
type Behavior string

// The behaviors. The zero value is BehaviorSafe.
const (
	// BehaviorSafe loses no event silently: Retry-After is honoured, an attempt without a response is retried, probation
	// holds events and starts only after failures that concern the endpoint, and an undeliverable event becomes a row. It
	// is the same under every policy: a copy of a built-in one carries columns that nobody decided on.
	BehaviorSafe Behavior = "safe"
	// BehaviorDocumented takes the policy's columns literally. Those of the built-in policies are what Event Grid's pages
	// say.
	BehaviorDocumented Behavior = "documented"
)

// Overrides are what an event subscription says of the course of its deliveries. Nil is what Behavior says, or the
// policy's default.
type Overrides struct {
	Behavior             Behavior
	HonorRetryAfter      *bool
	ProbationAction      *ProbationAction
	RetryTransportErrors *bool
	DeadLetter           *bool // whether a delivery that is given up becomes a dead letter
	MaxAttempts          *int
	TTLMinutes           *int
	// ResponseTimeoutSeconds replaces the policy's AckTimeout.
	ResponseTimeoutSeconds *int
	// MaxTTL bounds the time to live, whatever else is said: a namespace topic keeps its events no longer. 0 = no bound.
	MaxTTL time.Duration
}

// Rules are what holds for the deliveries of one event subscription.
type Rules struct {
	// Policy has the columns that an event subscription may set (AckTimeout, HonorRetryAfter, RetryTransportErrors and
	// Probation.Action) with their values for this one. It shares its lists with the stored policy, so it must not be
	// changed.
	Policy *Policy
	Limits Limits
	// DeadLetter: a delivery that is given up becomes a dead letter; else it is dropped.
	DeadLetter bool
}

// Resolve says what holds for an event subscription under p: its own wish, else what its behavior says. Limits outside
// p's ranges are brought into them: the ranges may have been narrowed since they were set, and a delivery that is owed
// must still end.
func (p *Policy) Resolve(w Overrides) Rules {
	own := *p
	safe := w.Behavior != BehaviorDocumented
	if safe {
		own.HonorRetryAfter, own.RetryTransportErrors = true, true
		own.Probation.Action, own.Probation.endpointFailuresOnly = ProbationHold, true
	}
	own.HonorRetryAfter = orDefault(w.HonorRetryAfter, own.HonorRetryAfter)
	own.RetryTransportErrors = orDefault(w.RetryTransportErrors, own.RetryTransportErrors)
	own.Probation.Action = orDefault(w.ProbationAction, own.Probation.Action)
	if w.ResponseTimeoutSeconds != nil {
		own.AckTimeout = time.Duration(*w.ResponseTimeoutSeconds) * time.Second
	}
	return Rules{
		Policy: &own, Limits: p.clamp(w), DeadLetter: orDefault(w.DeadLetter, safe || p.DeadLetterDefault != DeadLetterNone),
	}
}

func (p *Policy) clamp(w Overrides) Limits {
	l := Limits{MaxAttempts: p.DefaultMaxAttempts, TTL: p.DefaultTTL}
	if w.MaxAttempts != nil {
		l.MaxAttempts = min(max(*w.MaxAttempts, p.MinMaxAttempts), p.MaxMaxAttempts)
	}
	if w.TTLMinutes != nil {
		l.TTL = min(max(time.Duration(*w.TTLMinutes)*time.Minute, p.MinTTL), p.MaxTTL)
	}
	if w.MaxTTL > 0 {
		l.TTL = min(l.TTL, w.MaxTTL)
	}
	return l
}

// orDefault returns the value of a setting, or its default if it is absent.
func orDefault[T any](set *T, otherwise T) T {
	if set == nil {
		return otherwise
	}
	return *set
}
