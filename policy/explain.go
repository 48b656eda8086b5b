package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxExplained bounds Explain: a copied policy may have an attempt each second for 30 days.
const maxExplained = 100_000

// ExplainOptions describe the delivery to explain.
type ExplainOptions struct {
	Kind        EndpointKind  // "" = webhook
	Result      Result        // of every attempt; the zero Result = status 500
	MaxAttempts *int          // nil = the policy's default
	TTLMinutes  *int          // nil = the policy's default
	Behavior    Behavior      // "" = safe
	DeadLetter  *bool         // nil = what Behavior says
	RetryAfter  time.Duration // of every response; 0 = none
	Wait        time.Duration // of the first attempt, for its turn at a rate limit; 0 = none
	WaitedFor   string        // that rate limit: "the rate limit of 50 requests/s"
}

// Explanation is the attempt history of a delivery, in seconds from publishing.
type Explanation struct {
	Policy   string             `json:"policy"`
	Attempts []ExplainedAttempt `json:"attempts"`
	End      ExplainedEnd       `json:"end"`
}

// ExplainedAttempt is one attempt and the reason for its time.
type ExplainedAttempt struct {
	Number    int     `json:"number"`
	AtSeconds float64 `json:"atSeconds"`
	Why       string  `json:"why"`
}

// ExplainedEnd is when and how the delivery ends: with its last attempt, at its time to live, or when an attempt that
// is due finds it expired.
type ExplainedEnd struct {
	AtSeconds float64 `json:"atSeconds"`
	State     string  `json:"state"`
	Reason    Reason  `json:"reason,omitempty"`
	// Error is the last_error if the time to live ended before the first attempt.
	Error string `json:"error,omitempty"`
}

// Explain returns the attempts under p if each has the same result at once, without jitter, delayed delivery and
// probation. Only the first attempt waits for a rate limit: the deliveries before it are assumed to succeed. It calls
// Due and Decide as the engine does. An unknown kind or result, and limits outside the policy's ranges, are a
// *ValidationError; more than 100,000 attempts are an error.
func Explain(p *Policy, o ExplainOptions) (Explanation, error) {
	if err := o.validate(); err != nil {
		return Explanation{}, err
	}
	if err := p.CheckLimits(o.MaxAttempts, o.TTLMinutes); err != nil {
		return Explanation{}, err
	}
	rules := p.Resolve(Overrides{
		Behavior: o.Behavior, DeadLetter: o.DeadLetter, MaxAttempts: o.MaxAttempts, TTLMinutes: o.TTLMinutes,
	})
	p, limits := rules.Policy, rules.Limits
	published := time.Unix(0, 0).UTC()
	a := o.attempt(rules, published)
	x := Explanation{Policy: p.Name, Attempts: []ExplainedAttempt{}}
	why := "published"
	if o.Wait > 0 {
		why += "; waited for " + o.WaitedFor
		if deadline := p.Deadline(published, limits.TTL); !a.FinishedAt.Before(deadline) {
			a.FinishedAt = deadline // what waits on hold expires there, before its turn
		}
	}
	for ; a.Number <= maxExplained; a.Number++ {
		seconds := a.FinishedAt.Sub(published).Round(time.Microsecond).Seconds()
		due := DueCheck{a.Number - 1, a.TimeToLiveSince, a.FinishedAt, limits, a.DeadLetter}
		if v, ok := Due(p, due); !ok {
			x.End = explainedEnd(seconds, v)
			if a.Number == 1 {
				x.End.Error = ExpiredWaiting(o.WaitedFor)
			}
			return x, nil
		}
		x.Attempts = append(x.Attempts, ExplainedAttempt{Number: a.Number, AtSeconds: seconds, Why: why})
		v := Decide(p, a)
		if v.Action != Retry {
			x.End = explainedEnd(seconds, v)
			return x, nil
		}
		a.ScheduledAt, a.FinishedAt, a.SkippedOffsets = v.At, v.At, v.SkippedOffsets
		why = v.Why.String()
	}
	return Explanation{}, fmt.Errorf("explain %s: more than %d attempts", p.Name, maxExplained)
}

func (o ExplainOptions) validate() error {
	hasStatus := o.Result.Status != 0
	switch {
	case !slices.Contains([]Behavior{"", BehaviorSafe, BehaviorDocumented}, o.Behavior):
		return invalid("behavior", "must be safe or documented")
	case !slices.Contains([]EndpointKind{"", KindWebhook, KindAzureResource}, o.Kind):
		return invalid("endpointKind", "must be webhook or azure-resource")
	case o.Result.Err != ErrorNone && !slices.Contains(errorConditions, string(o.Result.Err)):
		return invalid("error", "must be one of "+strings.Join(errorConditions, ", "))
	case o.Result.Err != ErrorNone && hasStatus:
		return invalid("status", "must not be set with an error")
	case o.RetryAfter < 0:
		return invalid("retryAfter", fmt.Sprintf("must be 0 or more, not %s", o.RetryAfter))
	case hasStatus && !exactStatus(strconv.Itoa(o.Result.Status)):
		return invalid("status", "must be between 200 and 599")
	case o.Wait < 0:
		return invalid("wait", fmt.Sprintf("must be 0 or more, not %s", o.Wait))
	default:
		return nil
	}
}

func (o ExplainOptions) attempt(r Rules, at time.Time) Attempt {
	a := Attempt{
		Result: o.Result, Kind: o.Kind, Number: 1, Limits: r.Limits,
		TimeToLiveSince: at, FirstAttemptAt: at.Add(o.Wait), ScheduledAt: at, FinishedAt: at.Add(o.Wait),
		DeadLetter: r.DeadLetter, HonorRetryAfter: r.Policy.HonorRetryAfter, RetryAfter: o.RetryAfter,
	}
	if a.Result == (Result{}) {
		a.Result.Status = 500
	}
	if a.Kind == "" {
		a.Kind = KindWebhook
	}
	a.Throttled = r.Throttles(a.Result, a.HonorRetryAfter && a.RetryAfter > 0)
	return a
}

func explainedEnd(seconds float64, v Verdict) ExplainedEnd {
	states := map[VerdictAction]string{Delivered: "delivered", DeadLetter: "dead_lettered", Drop: "dropped"}
	return ExplainedEnd{AtSeconds: seconds, State: states[v.Action], Reason: v.Reason}
}
