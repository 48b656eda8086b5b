package policy

import (
	"fmt"
	"time"
)

// Behavior says how literally an event subscription takes its retry policy.
type Behavior string

// The behaviors. The zero value is BehaviorSafe.
const (
	// BehaviorSafe loses no event silently: Retry-After is honored, an attempt without a response is retried, probation
	// holds events and starts only after failures that concern the endpoint, and an undeliverable event becomes a dead
	// letter. It is the same under every policy: copies of built-in policies have settings that their authors did not
	// choose.
	BehaviorSafe Behavior = "safe"
	// BehaviorDocumented takes the policy's settings literally. Those of the built-in policies are what Event Grid's pages
	// say.
	BehaviorDocumented Behavior = "documented"
)

// Overrides are the settings of an event subscription that replace those of its retry policy. Nil is what Behavior
// says, or the policy's default.
type Overrides struct {
	Behavior             Behavior
	HonorRetryAfter      *bool
	ProbationAction      *ProbationAction
	RetryTransportErrors *bool
	DeadLetter           *bool // whether a delivery that fails for good becomes a dead letter
	MaxAttempts          *int
	TTLMinutes           *int
	// ResponseTimeoutSeconds replaces the policy's AckTimeout.
	ResponseTimeoutSeconds *int
	// MaxTTL bounds the time to live: a namespace topic keeps its events no longer. 0 = no bound.
	MaxTTL time.Duration
}

// Limits are the limits of a delivery.
type Limits struct {
	MaxAttempts int           // 0 = no limit
	TTL         time.Duration // time to live
}

// Rules apply to the deliveries of one event subscription.
type Rules struct {
	// Policy has the settings that an event subscription may override (AckTimeout, HonorRetryAfter, RetryTransportErrors
	// and Probation.Action) with their values for this one. It shares its lists with the stored policy: do not change it.
	Policy *Policy
	Limits Limits
	// DeadLetter: a delivery that fails for good becomes a dead letter; otherwise it is dropped.
	DeadLetter bool
	// BacksOff: responses that throttle lower the concurrency or close the endpoint, see Throttles. It is false under
	// behavior documented.
	BacksOff bool
}

// Resolve returns the rules of an event subscription under p. Limits outside p's ranges are brought into them: the
// ranges may have been narrowed later, and pending deliveries must still end.
func (p *Policy) Resolve(o Overrides) Rules {
	own := *p
	safe := o.Behavior != BehaviorDocumented
	if safe {
		own.HonorRetryAfter, own.RetryTransportErrors = true, true
		own.Probation.Action, own.Probation.endpointFailuresOnly = ProbationHold, true
	}
	own.HonorRetryAfter = orDefault(o.HonorRetryAfter, own.HonorRetryAfter)
	own.RetryTransportErrors = orDefault(o.RetryTransportErrors, own.RetryTransportErrors)
	own.Probation.Action = orDefault(o.ProbationAction, own.Probation.Action)
	if o.ResponseTimeoutSeconds != nil {
		own.AckTimeout = Seconds(*o.ResponseTimeoutSeconds) * second
	}
	l := Limits{MaxAttempts: p.MaxAttempts.Default, TTL: time.Duration(p.TTL.Default)}
	if o.MaxAttempts != nil {
		l.MaxAttempts = min(max(*o.MaxAttempts, p.MaxAttempts.Least), p.MaxAttempts.Most)
	}
	if o.TTLMinutes != nil {
		l.TTL = time.Duration(min(max(Minutes(*o.TTLMinutes)*Minutes(time.Minute), p.TTL.Least), p.TTL.Most))
	}
	if o.MaxTTL > 0 {
		l.TTL = min(l.TTL, o.MaxTTL)
	}
	deadLetter := orDefault(o.DeadLetter, safe || p.DeadLetterDefault != DeadLetterNone)
	return Rules{Policy: &own, Limits: l, DeadLetter: deadLetter, BacksOff: safe}
}

// MaxAge is the age at which a delivery expires.
func (r *Rules) MaxAge() time.Duration {
	return r.Policy.Deadline(time.Time{}, r.Limits.TTL).Sub(time.Time{})
}

// Throttles reports whether a response requests fewer requests: 429, or 503 with Retry-After. It is no failure of the
// endpoint, unless the behavior is documented.
func (r *Rules) Throttles(result Result, retryAfter bool) bool {
	return r.BacksOff && result.Err == ErrorNone && (result.Status == 429 || result.Status == 503 && retryAfter)
}

// LastAttemptAge is the age from which a delivery is attempted though its endpoint is closed: the rest of its time to
// live is enough for a response.
func (r *Rules) LastAttemptAge() time.Duration {
	age := r.MaxAge()
	return age - min(time.Duration(r.Policy.AckTimeout), age/2)
}

// CheckLimits returns a *ValidationError with the field and the range if a limit of an event subscription is outside
// the policy's range. Nil is the default.
func (p *Policy) CheckLimits(maxAttempts, ttlMinutes *int) error {
	for _, limit := range []struct {
		field, unit string
		value       *int
		least, most int
	}{
		{"maxDeliveryAttempts", "", maxAttempts, p.MaxAttempts.Least, p.MaxAttempts.Most},
		{"eventTimeToLiveInMinutes", " minutes", ttlMinutes, p.TTL.Least.Whole(), p.TTL.Most.Whole()},
	} {
		if limit.value != nil && (*limit.value < limit.least || *limit.value > limit.most) {
			return invalid("retryPolicy."+limit.field, fmt.Sprintf("must be between %d and %d%s under retry policy %s, not %d",
				limit.least, limit.most, limit.unit, p.Name, *limit.value))
		}
	}
	return nil
}

// orDefault returns the value of a setting, or its default if it is absent.
func orDefault[T any](set *T, otherwise T) T {
	if set == nil {
		return otherwise
	}
	return *set
}
