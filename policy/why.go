package policy

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Rule is the rule that decided.
type Rule string

// The rules.
const (
	RuleSuccess     Rule = "success"
	RuleMaxAttempts Rule = "max_attempts"
	RuleNever       Rule = "never"
	RuleExpired     Rule = "expired"
	RuleRetry       Rule = "retry"
)

// Why explains a verdict: the rule and its numbers. String makes it one line, which is stored with every attempt.
type Why struct {
	Result Result // of the attempt; zero if none was made
	Cell   string // the condition of the cell that matched: "503", "other"
	Rule   Rule

	Basis      Basis         // retry: what Step is counted from
	Number     int           // retry: which step or offset; max_attempts: the limit
	Step       time.Duration // retry: the wait, or the offset from the first attempt
	Floor      time.Duration // retry: least wait after the failure
	Jitter     time.Duration // retry: added
	RetryAfter time.Duration // retry: what the endpoint requested, if later than the schedule
	// RetryAfterCap and LastAttempt say what shortened that wait: the policy's cap, or the time of a last attempt.
	RetryAfterCap time.Duration
	LastAttempt   bool
	Skipped       int           // retry: offsets that have passed
	Limit         time.Duration // expired: the time to live; retry: set if the delivery ends before the scheduled time

	Throttled bool   // the response requests fewer requests, see Rules.Throttles
	WaitedFor string // the rate limit that the attempt waited for; "" = none
}

// ExpiredWaiting is the last error of a delivery whose time to live ended while it waited for a rate limit.
func ExpiredWaiting(limit string) string {
	return "its time to live ended while it waited for " + limit
}

// String returns the explanation: "503: at least 30 s; step 2 is 30 s after the failure".
func (w Why) String() string {
	text := w.decision()
	if w.Throttled {
		text += "; lowers the concurrency"
	}
	if w.WaitedFor != "" {
		text += "; waited for " + w.WaitedFor
	}
	return text
}

func (w Why) decision() string {
	switch w.Rule {
	case RuleSuccess:
		return w.result() + ": success"
	case RuleMaxAttempts:
		if w.Result == (Result{}) {
			return fmt.Sprintf("no further attempt: maxDeliveryAttempts is %d", w.Number)
		}
		return fmt.Sprintf("%s: attempt %d of %d failed", w.result(), w.Number, w.Number)
	case RuleNever:
		return w.result() + ": never retried"
	case RuleExpired:
		if w.Result == (Result{}) {
			return fmt.Sprintf("the time to live of %s has passed", span(w.Limit))
		}
		return fmt.Sprintf("%s: the time to live of %s had passed before the attempt ended", w.result(), span(w.Limit))
	case RuleRetry:
		parts := make([]string, 0, 6)
		if w.Floor > 0 {
			parts = append(parts, "at least "+span(w.Floor))
		}
		if w.Skipped > 0 {
			parts = append(parts, fmt.Sprintf("offsets skipped: %d", w.Skipped))
		}
		if w.Basis == BasisOffset {
			parts = append(parts, fmt.Sprintf("offset %d is %s after the first attempt", w.Number, span(w.Step)))
		} else {
			parts = append(parts, fmt.Sprintf("step %d is %s after the failure", w.Number, span(w.Step)))
		}
		if w.Jitter > 0 {
			parts = append(parts, "jitter "+span(w.Jitter))
		}
		if w.RetryAfter > 0 {
			text := "Retry-After requests " + span(w.RetryAfter)
			if w.RetryAfterCap > 0 {
				text += ", capped at " + span(w.RetryAfterCap)
			}
			if w.LastAttempt {
				text += ", shortened for a last attempt before the delivery ends"
			}
			parts = append(parts, text)
		}
		if w.Limit > 0 {
			parts = append(parts, "but the delivery ends after "+span(w.Limit))
		}
		return w.result() + ": " + strings.Join(parts, "; ")
	default:
		return ""
	}
}

func (w Why) result() string {
	if result := w.Result.String(); result == w.Cell {
		return result
	}
	return w.Result.String() + " (" + w.Cell + ")"
}

// span writes a duration as "30 s", "5 min", "1 h 30 min" or "1.25 s", without parts below a millisecond.
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
