package policy

import (
	"time"
)

// Attempt is everything Decide needs to know about a delivery attempt that has just ended. All times come from the
// database's clock, so that a node whose own clock is an hour off decides the same.
type Attempt struct {
	Result Result
	Kind   EndpointKind

	Number         int // attempts made, this one included: 1 is the first
	SkippedOffsets int // offset basis: marks skipped so far, as the last verdict said

	TimeToLiveSince time.Time // when the event was published, or redelivery was asked for
	FirstAttemptAt  time.Time // when the delivery's first attempt began
	ScheduledAt     time.Time // when this attempt was due
	FinishedAt      time.Time // when its result was known

	Limits     Limits
	DeadLetter bool // a dead-letter destination is set

	HonorRetryAfter bool
	RetryAfter      time.Duration // what the endpoint's Retry-After requests; 0 = nothing

	Jitter float64 // a random number in [0,1); 0 switches jitter off
}

// VerdictAction is what becomes of a delivery.
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
	At     time.Time // Retry: the next attempt, or the moment the delivery is to be ended by Due
	// Retry: the next attempt that was wanted, where At is sooner and to end the delivery; see Defer
	NotBefore      time.Time
	SkippedOffsets int    // to be stored with the delivery and handed to the next Decide
	Reason         Reason // DeadLetter, Drop
	Why            Why
}

// Decide says what follows from an attempt. A success ends the delivery. After a failure, in this order: the last
// allowed attempt has failed; the result is never retried; the time to live is over; else the attempt is repeated. So a
// 404 to the only allowed attempt reads MaxDeliveryAttemptsExceeded, as in Microsoft's own sample of a dead letter.
func Decide(p *Policy, a Attempt) Verdict {
	cell := p.Cell(a.Kind, a.Result)
	why := Why{Result: a.Result, Cell: cell.Condition}
	switch {
	case cell.Action == ActionSuccess:
		why.Rule = RuleSuccess
		return Verdict{Action: Delivered, SkippedOffsets: a.SkippedOffsets, Why: why}
	case a.Limits.MaxAttempts > 0 && a.Number >= a.Limits.MaxAttempts:
		why.Rule, why.Number = RuleMaxAttempts, a.Limits.MaxAttempts
		return a.end(ReasonMaxDeliveryAttemptsExceeded, why)
	case p.neverRetried(cell, a):
		why.Rule = RuleNever
		return a.end(neverReason(a.Result), why)
	default:
		why.Floor = cell.MinDelay
		return p.retry(a, why)
	}
}

// DueCheck is a delivery whose next attempt is due.
type DueCheck struct {
	Attempts        int       // attempts made
	TimeToLiveSince time.Time // as in Attempt
	Now             time.Time
	Limits          Limits
	DeadLetter      bool // a dead-letter destination is set
}

// Due decides before an attempt. It returns true when the attempt may be made, and else the verdict that ends the
// delivery: the limit of attempts is used up, because it was lowered after the last one, or the time to live is over.
// The latter test is inclusive: an event of 20 minutes to live whose turn comes at minute 20 is expired (the worked
// example of Microsoft's namespace page, 2023-11).
func Due(p *Policy, t DueCheck) (Verdict, bool) {
	if t.Limits.MaxAttempts > 0 && t.Attempts >= t.Limits.MaxAttempts {
		why := Why{Rule: RuleMaxAttempts, Number: t.Limits.MaxAttempts}
		return end(t.DeadLetter, 0, ReasonMaxDeliveryAttemptsExceeded, why), false
	}
	deadline := p.Deadline(t.TimeToLiveSince, t.Limits.TTL)
	if t.Now.Before(deadline) {
		return Verdict{}, true
	}
	why := Why{Rule: RuleExpired, Limit: deadline.Sub(t.TimeToLiveSince)}
	return end(t.DeadLetter, 0, ReasonTimeToLiveExceeded, why), false
}

// Defer is asked for a turn that Due lets be attempted. notBefore is what the verdict said that the turn comes from:
// it was to end the delivery, which has got more time since, from a pause that stops the clock or from somebody who
// changed its time to live. Then no attempt is made before that time, and Defer returns when its turn comes again.
func (p *Policy) Defer(notBefore, timeToLiveSince, now time.Time, l Limits) (at time.Time, off bool) {
	if !now.Before(notBefore) {
		return time.Time{}, false
	}
	last, bounded := p.lastWake(Attempt{TimeToLiveSince: timeToLiveSince, Limits: l})
	if !bounded {
		last = p.Deadline(timeToLiveSince, l.TTL)
	}
	if last.Before(notBefore) {
		return last, true
	}
	return notBefore, true
}

func (p *Policy) neverRetried(c Cell, a Attempt) bool {
	if a.Result.Err != ErrorNone && p.RetryTransportErrors {
		return false
	}
	return c.Action == ActionNever || c.Action == ActionNeverIfDeadLetter && a.DeadLetter
}

func neverReason(r Result) Reason {
	if r.Status == 400 {
		return ReasonHTTPBadRequest
	}
	return ReasonClientError
}

func (a Attempt) end(r Reason, why Why) Verdict {
	return end(a.DeadLetter, a.SkippedOffsets, r, why)
}

// end is the one place where a dead-letter destination makes a difference: the same end, for the same reason, is a dead
// letter with one and a drop without.
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
	wanted := at // by the schedule: Retry-After alone never moves an attempt to the delivery's end
	last, bounded := p.lastWake(a)
	switch {
	case bounded && !a.FinishedAt.Before(last):
		why = Why{Result: why.Result, Cell: why.Cell, Rule: RuleExpired, Limit: last.Sub(a.TimeToLiveSince)}
		return end(a.DeadLetter, skipped, ReasonTimeToLiveExceeded, why)
	case bounded && !at.Before(last):
		why.Limit = last.Sub(a.TimeToLiveSince)
		at = last
	}
	v := Verdict{Action: Retry, At: at, SkippedOffsets: skipped, Why: why}
	if wanted.After(at) {
		v.NotBefore = wanted
	}
	return v
}

// next places the following attempt on the retry schedule. Jitter only adds, for the pages promise "10 seconds or
// more".
func (p *Policy) next(a Attempt, why Why) (at time.Time, skipped int, _ Why) {
	why.Rule, why.Basis = RuleRetry, p.Basis
	var interval time.Duration
	skipped = a.SkippedOffsets
	if p.Basis == BasisOffset {
		why.Skipped = p.passedOffsets(a)
		skipped += why.Skipped
		why.Number = a.Number + skipped
		why.Step = p.mark(why.Number)
		interval = why.Step - p.mark(why.Number-1)
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

// retryAfter lets an endpoint request a later attempt, never an earlier one. The wait is bounded by RetryAfterCap, and
// it ends early enough for one more attempt, with its ack timeout, before the delivery ends by its time to live or by
// the retry window. Without room for that attempt the schedule's time stands.
func (p *Policy) retryAfter(a Attempt, at time.Time, why Why) (time.Time, Why) {
	if !a.HonorRetryAfter || !a.FinishedAt.Add(a.RetryAfter).After(at) {
		return at, why
	}
	why.RetryAfter = a.RetryAfter
	wait := a.RetryAfter
	if p.RetryAfterCap > 0 && wait > p.RetryAfterCap {
		wait, why.RetryAfterCap = p.RetryAfterCap, p.RetryAfterCap
	}
	requested := a.FinishedAt.Add(wait)
	last := p.Deadline(a.TimeToLiveSince, a.Limits.TTL).Add(-scaled(p.AckTimeout, p.scale))
	if requested.After(last) {
		requested, why.LastAttempt = last, true
	}
	return later(at, requested), why
}

// lastWake returns the moment after which the delivery need not be looked at again, if there is one. Ending at the time
// to live, it is that moment; ending at the next attempt, it is the end of the retry window, without which a ga-2021
// delivery would wait until 34 h 46 m for its mark to find that 24 hours have passed.
func (p *Policy) lastWake(a Attempt) (time.Time, bool) {
	if p.Expiry == ExpiryAtTTL {
		return p.Deadline(a.TimeToLiveSince, a.Limits.TTL), true
	}
	return a.TimeToLiveSince.Add(p.RetryWindow), p.RetryWindow > 0
}

// wait returns the gap after the n-th failed attempt.
func (p *Policy) wait(n int) time.Duration {
	if n >= 1 && n <= len(p.Steps) {
		return p.Steps[n-1]
	}
	return p.Tail
}

// mark returns the n-th mark after the first attempt, which itself is mark 0.
func (p *Policy) mark(n int) time.Duration {
	switch {
	case n <= 0:
		return 0
	case n <= len(p.Steps):
		return p.Steps[n-1]
	case len(p.Steps) == 0:
		return time.Duration(n) * p.Tail
	default:
		return p.Steps[len(p.Steps)-1] + time.Duration(n-len(p.Steps))*p.Tail
	}
}

// passedOffsets counts the marks that went by between the moment the attempt was due and its end: while the delivery
// was held, or while a slow endpoint was answering. They are skipped, not made up for in a bunch. A mark that the
// attempt's own due time had already passed is kept: a status floor put it there, and the next attempt stands on it.
func (p *Policy) passedOffsets(a Attempt) int {
	before := max(a.Number+a.SkippedOffsets-1, p.marksUntil(a.ScheduledAt.Sub(a.FirstAttemptAt)))
	return max(0, p.marksUntil(a.FinishedAt.Sub(a.FirstAttemptAt))-before)
}

// marksUntil counts the marks at or before d, mark 0 not counted. The tail is divided, not walked: a delivery held for
// a week has passed 2,016 marks of five minutes.
func (p *Policy) marksUntil(d time.Duration) int {
	n := 0
	for n < len(p.Steps) && p.Steps[n] <= d {
		n++
	}
	if n < len(p.Steps) || p.Tail <= 0 || d < 0 {
		return n
	}
	return n + int((d-p.mark(n))/p.Tail)
}

// jitter scales u, a number in [0,1), to this step's share.
func (p *Policy) jitter(step time.Duration, u float64) time.Duration {
	most := min(time.Duration(float64(step)*p.JitterFraction), p.JitterCap)
	if !(u > 0) || most <= 0 { // written so that NaN, too, means none
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
