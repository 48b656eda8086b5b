package policy

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Rule names the rule that decided.
type Rule string

// The rules.
const (
	RuleSuccess     Rule = "success"
	RuleMaxAttempts Rule = "max_attempts"
	RuleNever       Rule = "never"
	RuleExpired     Rule = "expired"
	RuleRetry       Rule = "retry"
)

// Why explains a verdict: the rule and the numbers that went into it. String makes it one line, which is stored with
// every attempt, so that nobody has to reconstruct later why an event waits until then.
type Why struct {
	Result  Result // what the attempt met; zero at a turn without an attempt
	Cell string // the condition of the policy's cell that answered: "503", "other"
	Rule Rule

	Basis      Basis         // retry: how Step is to be read
	Number     int           // retry: which step or mark; max_attempts: the limit
	Step       time.Duration // retry: the wait, or the mark after the first attempt
	Floor      time.Duration // retry: no sooner than this after the failure
	Jitter     time.Duration // retry: added
	RetryAfter time.Duration // retry: what the endpoint requested, where that is later than the schedule
	// RetryAfterCap and LastAttempt say what shortened that wait: the policy's cap, or the room that a last attempt needs.
	RetryAfterCap time.Duration
	LastAttempt   bool
	Skipped       int           // retry: marks that had gone by
	Limit         time.Duration // expired: the time to live; retry: set where it ends the wait sooner than the schedule
}

// String returns the explanation in one readable line: "503: no sooner than 30 s; step 2 is 30 s after the failure".
func (w Why) String() string {
	switch w.Rule {
	case RuleSuccess:
		return w.met() + ": success"
	case RuleMaxAttempts:
		if w.Result == (Result{}) {
			return fmt.Sprintf("no further attempt: maxDeliveryAttempts is %d", w.Number)
		}
		return fmt.Sprintf("%s: attempt %d of %d failed", w.met(), w.Number, w.Number)
	case RuleNever:
		return w.met() + ": never retried"
	case RuleExpired:
		return w.expired()
	case RuleRetry:
		return w.met() + ": " + strings.Join(w.retry(), "; ")
	default:
		return ""
	}
}

func (w Why) met() string {
	if met := w.Result.String(); met == w.Cell {
		return met
	}
	return w.Result.String() + " (" + w.Cell + ")"
}

func (w Why) expired() string {
	if w.Result == (Result{}) {
		return fmt.Sprintf("the time to live of %s is over", span(w.Limit))
	}
	return fmt.Sprintf("%s: the time to live of %s was over before the attempt ended", w.met(), span(w.Limit))
}

func (w Why) retry() []string {
	parts := make([]string, 0, 6)
	if w.Floor > 0 {
		parts = append(parts, "no sooner than "+span(w.Floor))
	}
	if w.Skipped > 0 {
		parts = append(parts, fmt.Sprintf("marks skipped: %d", w.Skipped))
	}
	if w.Basis == BasisOffset {
		parts = append(parts, fmt.Sprintf("mark %d is %s after the first attempt", w.Number, span(w.Step)))
	} else {
		parts = append(parts, fmt.Sprintf("step %d is %s after the failure", w.Number, span(w.Step)))
	}
	if w.Jitter > 0 {
		parts = append(parts, "jitter "+span(w.Jitter))
	}
	if w.RetryAfter > 0 {
		parts = append(parts, w.retryAfter())
	}
	if w.Limit > 0 {
		parts = append(parts, "but the delivery ends "+span(w.Limit)+" after it was owed")
	}
	return parts
}

func (w Why) retryAfter() string {
	text := "Retry-After requests " + span(w.RetryAfter)
	if w.RetryAfterCap > 0 {
		text += ", capped at " + span(w.RetryAfterCap)
	}
	if w.LastAttempt {
		text += ", shortened for a last attempt before the delivery ends"
	}
	return text
}

// span prints a duration as people write it: "30 s", "5 min", "1 h 30 min", "1.25 s". Parts below a millisecond are
// cut.
func span(d time.Duration) string {
	if d < time.Second {
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	}
	d = d.Truncate(time.Millisecond)
	parts := make([]string, 0, 3)
	if h := d / time.Hour; h > 0 {
		parts = append(parts, strconv.FormatInt(int64(h), 10)+" h")
	}
	if m := d % time.Hour / time.Minute; m > 0 {
		parts = append(parts, strconv.FormatInt(int64(m), 10)+" min")
	}
	if ms := (d % time.Minute).Milliseconds(); ms > 0 {
		parts = append(parts, strconv.FormatFloat(float64(ms)/1000, 'f', -1, 64)+" s")
	}
	return strings.Join(parts, " ")
}
