package policy

import "time"

// Attempt is what Decide reads of a delivery attempt that has ended. All times come from the database's clock, so that
// a node with a wrong clock decides the same.
type Attempt struct {
	Result Result
	Kind   EndpointKind

	Number         int // attempts made, this one included: 1 is the first
	SkippedOffsets int // offset basis: offsets skipped so far, as in the last verdict

	TimeToLiveSince time.Time // when the event was published or redelivered
	FirstAttemptAt  time.Time // when the delivery's first attempt began
	ScheduledAt     time.Time // when this attempt was due
	FinishedAt      time.Time // when its result was known

	Limits     Limits
	DeadLetter bool // there is a dead-letter destination

	HonorRetryAfter bool
	RetryAfter      time.Duration // of the response's Retry-After; 0 = none

	Throttled bool   // the response requests fewer requests, see Rules.Throttles
	WaitedFor string // the rate limit that the attempt waited for; "" = none

	Jitter float64 // a random number in [0,1); 0 = no jitter
}

// VerdictAction is what happens to a delivery.
type VerdictAction string

// The verdicts.
const (
	Delivered  VerdictAction = "deliver"
	Retry      VerdictAction = "retry"
	DeadLetter VerdictAction = "dead_letter"
	Drop       VerdictAction = "drop"
)

// Verdict is the decision on a delivery.
type Verdict struct {
	Action VerdictAction
	At     time.Time // Retry: the next attempt, or the time at which Due ends the delivery
	// Retry: the next attempt of the schedule, if At is earlier and ends the delivery; see Defer
	NotBefore      time.Time
	SkippedOffsets int    // for the next Attempt
	Reason         Reason // DeadLetter, Drop
	Why            Why
}

// Decide returns what follows from an attempt. A success ends the delivery. After a failure it checks in this order:
// the limit of attempts; a result that is never retried; the time to live; otherwise it retries. So a 404 to the only
// allowed attempt is MaxDeliveryAttemptsExceeded, as in Microsoft's sample of a dead letter.
func Decide(p *Policy, a Attempt) Verdict {
	cell := p.Cell(a.Kind, a.Result)
	why := Why{Result: a.Result, Cell: cell.Condition, Throttled: a.Throttled, WaitedFor: a.WaitedFor}
	switch {
	case cell.Action == ActionSuccess:
		why.Rule = RuleSuccess
		return Verdict{Action: Delivered, SkippedOffsets: a.SkippedOffsets, Why: why}
	case a.Limits.MaxAttempts > 0 && a.Number >= a.Limits.MaxAttempts:
		why.Rule, why.Number = RuleMaxAttempts, a.Limits.MaxAttempts
		return end(a.DeadLetter, a.SkippedOffsets, ReasonMaxDeliveryAttemptsExceeded, why)
	case p.neverRetried(cell, a):
		why.Rule = RuleNever
		reason := ReasonClientError
		if a.Result.Status == 400 {
			reason = ReasonHTTPBadRequest
		}
		return end(a.DeadLetter, a.SkippedOffsets, reason, why)
	default:
		why.Floor = time.Duration(cell.MinDelay)
		return p.retry(a, why)
	}
}

// Deadline returns the time from which a delivery is expired and no attempt is made: after its time to live, or after
// the policy's retry window if that is shorter.
func (p *Policy) Deadline(timeToLiveSince time.Time, ttl time.Duration) time.Time {
	if window := time.Duration(p.RetryWindow); window > 0 {
		ttl = min(ttl, window)
	}
	return timeToLiveSince.Add(ttl)
}

// DueCheck is a delivery whose next attempt is due.
type DueCheck struct {
	Attempts        int       // attempts made
	TimeToLiveSince time.Time // as in Attempt
	Now             time.Time
	Limits          Limits
	DeadLetter      bool // there is a dead-letter destination
}

// Due decides before an attempt. It returns true if the attempt may be made, otherwise the verdict that ends the
// delivery: the limit of attempts was lowered after the last one, or the time to live has passed. An event of 20
// minutes to live that is due at minute 20 is expired (the example of Microsoft's namespace page, 2023-11).
func Due(p *Policy, c DueCheck) (Verdict, bool) {
	if c.Limits.MaxAttempts > 0 && c.Attempts >= c.Limits.MaxAttempts {
		why := Why{Rule: RuleMaxAttempts, Number: c.Limits.MaxAttempts}
		return end(c.DeadLetter, 0, ReasonMaxDeliveryAttemptsExceeded, why), false
	}
	deadline := p.Deadline(c.TimeToLiveSince, c.Limits.TTL)
	if c.Now.Before(deadline) {
		return Verdict{}, true
	}
	why := Why{Rule: RuleExpired, Limit: deadline.Sub(c.TimeToLiveSince)}
	return end(c.DeadLetter, 0, ReasonTimeToLiveExceeded, why), false
}

// Defer returns the time at which a delivery that Due lets be attempted is due again, if that is not now. notBefore is
// that of the last verdict, which was to end the delivery; since then a pause or an operator has extended its time to
// live. No attempt is made before notBefore.
func (p *Policy) Defer(notBefore, timeToLiveSince, now time.Time, l Limits) (at time.Time, deferred bool) {
	if !now.Before(notBefore) {
		return time.Time{}, false
	}
	last, bounded := p.lastDue(Attempt{TimeToLiveSince: timeToLiveSince, Limits: l})
	if !bounded {
		last = p.Deadline(timeToLiveSince, l.TTL)
	}
	if last.Before(notBefore) {
		return last, true
	}
	return notBefore, true
}

func (p *Policy) neverRetried(c Cell, a Attempt) bool {
	if a.Result.Err != ErrorNone && !a.Result.Responded() && p.RetryTransportErrors {
		return false
	}
	return c.Action == ActionNever || c.Action == ActionNeverIfDeadLetter && a.DeadLetter
}

// end is the only place where a dead-letter destination makes a difference: with one, the delivery becomes a dead
// letter.
func end(deadLetter bool, skippedOffsets int, r Reason, why Why) Verdict {
	v := Verdict{Action: Drop, SkippedOffsets: skippedOffsets, Reason: r, Why: why}
	if deadLetter {
		v.Action = DeadLetter
	}
	return v
}

func (p *Policy) retry(a Attempt, why Why) Verdict {
	at, skipped, why := p.next(a, why)
	at, why = p.retryAfter(a, at, why)
	scheduled := at // Retry-After alone never moves an attempt to the end of the delivery
	last, bounded := p.lastDue(a)
	if bounded && !a.FinishedAt.Before(last) {
		why = Why{
			Result: why.Result, Cell: why.Cell, Rule: RuleExpired, Limit: last.Sub(a.TimeToLiveSince),
			Throttled: a.Throttled, WaitedFor: a.WaitedFor,
		}
		return end(a.DeadLetter, skipped, ReasonTimeToLiveExceeded, why)
	}
	if bounded && !at.Before(last) {
		why.Limit = last.Sub(a.TimeToLiveSince)
		at = last
	}
	v := Verdict{Action: Retry, At: at, SkippedOffsets: skipped, Why: why}
	if scheduled.After(at) {
		v.NotBefore = scheduled
	}
	return v
}

// next returns the time of the next attempt on the retry schedule. Jitter only adds, because the pages say "10 seconds
// or more".
func (p *Policy) next(a Attempt, why Why) (at time.Time, skipped int, _ Why) {
	why.Rule, why.Basis = RuleRetry, p.Basis
	var interval time.Duration
	skipped = a.SkippedOffsets
	if p.Basis == BasisOffset {
		why.Skipped = p.passedOffsets(a)
		skipped += why.Skipped
		why.Number = a.Number + skipped
		why.Step = p.offset(why.Number)
		interval = why.Step - p.offset(why.Number-1)
		at = later(a.FirstAttemptAt.Add(why.Step), a.FinishedAt.Add(why.Floor))
	} else {
		why.Number = a.Number
		why.Step = p.wait(why.Number)
		interval = why.Step
		at = a.FinishedAt.Add(max(why.Step, why.Floor))
	}
	why.Jitter = p.jitter(interval, a.Jitter)
	return at.Add(why.Jitter), skipped, why
}

// retryAfter moves the attempt to the time that the endpoint requested, if that is later. The wait is bounded by
// RetryAfterCap, and by the time of a last attempt, with its ack timeout, before the delivery's deadline. If it is too
// late for such an attempt, the schedule's time stands.
func (p *Policy) retryAfter(a Attempt, at time.Time, why Why) (time.Time, Why) {
	if !a.HonorRetryAfter || !a.FinishedAt.Add(a.RetryAfter).After(at) {
		return at, why
	}
	why.RetryAfter = a.RetryAfter
	wait := a.RetryAfter
	if most := time.Duration(p.RetryAfterCap); most > 0 && wait > most {
		wait, why.RetryAfterCap = most, most
	}
	requested := a.FinishedAt.Add(wait)
	last := p.Deadline(a.TimeToLiveSince, a.Limits.TTL).Add(-time.Duration(scaled(p.AckTimeout, p.scale)))
	if requested.After(last) {
		requested, why.LastAttempt = last, true
	}
	return later(at, requested), why
}

// lastDue returns the time after which the delivery must not wait, if there is one: the deadline under ExpiryAtTTL.
// Under ExpiryNextAttempt it is the end of the retry window, without which a ga-2021 delivery would expire only when
// its next attempt is due, after 34 h 46 m.
func (p *Policy) lastDue(a Attempt) (time.Time, bool) {
	if p.Expiry == ExpiryAtTTL {
		return p.Deadline(a.TimeToLiveSince, a.Limits.TTL), true
	}
	return a.TimeToLiveSince.Add(time.Duration(p.RetryWindow)), p.RetryWindow > 0
}

// wait returns the gap after the n-th failed attempt.
func (p *Policy) wait(n int) time.Duration {
	if n >= 1 && n <= len(p.Steps) {
		return time.Duration(p.Steps[n-1])
	}
	return time.Duration(p.Tail)
}

// offset returns the n-th offset from the first attempt, whose own offset is 0.
func (p *Policy) offset(n int) time.Duration {
	switch {
	case n <= 0:
		return 0
	case n <= len(p.Steps):
		return time.Duration(p.Steps[n-1])
	case len(p.Steps) == 0:
		return time.Duration(Seconds(n) * p.Tail)
	default:
		return time.Duration(p.Steps[len(p.Steps)-1] + Seconds(n-len(p.Steps))*p.Tail)
	}
}

// passedOffsets counts the offsets that passed between the time the attempt was due and its end: the delivery was held,
// or the endpoint was slow. They are skipped, not made up for. An offset before the due time is kept: a status's
// MinDelay moved the attempt past it.
func (p *Policy) passedOffsets(a Attempt) int {
	before := max(a.Number+a.SkippedOffsets-1, p.offsetsUntil(a.ScheduledAt.Sub(a.FirstAttemptAt)))
	return max(0, p.offsetsUntil(a.FinishedAt.Sub(a.FirstAttemptAt))-before)
}

// offsetsUntil counts the offsets after 0 at or before d. It divides by the tail instead of looping: a delivery held
// for a week has passed 2,016 offsets of five minutes.
func (p *Policy) offsetsUntil(d time.Duration) int {
	n := 0
	for n < len(p.Steps) && time.Duration(p.Steps[n]) <= d {
		n++
	}
	if n < len(p.Steps) || p.Tail <= 0 || d < 0 {
		return n
	}
	return n + int((d-p.offset(n))/time.Duration(p.Tail))
}

// jitter returns the share u, in [0,1), of the most jitter of this step.
func (p *Policy) jitter(step time.Duration, u float64) time.Duration {
	most := min(time.Duration(float64(step)*p.JitterFraction), time.Duration(p.JitterCap))
	if !(u > 0) || most <= 0 { // !(u > 0) is also true for NaN
		return 0
	}
	return time.Duration(min(u, 1) * float64(most))
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
