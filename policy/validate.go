package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ValidationError says what is wrong with a value that a person or program handed in. Field is the JSON path of the
// property, Message a phrase that reads on from it; both may be shown to the caller.
type ValidationError struct {
	Field   string
	Message string
}

// Error returns "field: message".
func (e *ValidationError) Error() string { return e.Field + ": " + e.Message }

const (
	minNameLength, maxNameLength = 3, 64
	reservedPrefix               = "postrider."
)

// ValidName reports, as a *ValidationError on field, why s cannot name a topic, an event subscription or a policy.
func ValidName(field, s string) error {
	if !wellFormedName(s) {
		return &ValidationError{field, fmt.Sprintf(
			"must be %d to %d characters: letters, digits, '.', '_' and '-', the first a letter or digit", minNameLength, maxNameLength)}
	}
	if strings.HasPrefix(strings.ToLower(s), reservedPrefix) {
		return &ValidationError{field, fmt.Sprintf("must not begin with %q, which is reserved", reservedPrefix)}
	}
	return nil
}

func wellFormedName(s string) bool {
	if len(s) < minNameLength || len(s) > maxNameLength || !alphanumeric(rune(s[0])) {
		return false
	}
	for i := 1; i < len(s); i++ {
		if c := rune(s[i]); !alphanumeric(c) && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

func alphanumeric(c rune) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// Bounds of a policy of one's own. 230 s is the longest an endpoint may take to answer: a call holds a worker that long.
const (
	maxAckTimeout = 230 * time.Second
	maxTTL        = 30 * day
	maxAttempts   = 1000
	maxSteps      = 100
)

// Validate reports, as a *ValidationError, the first thing that keeps p from being a working policy. It is what a copied
// policy must pass before it is stored; the built-in ones pass it.
func (p *Policy) Validate() error {
	if err := ValidName("name", p.Name); err != nil {
		return err
	}
	for _, check := range slices.Concat(p.timingChecks(), p.limitChecks(), p.optionChecks()) {
		if !check.ok {
			return &ValidationError{check.field, check.message}
		}
	}
	return p.validateCells()
}

type check struct {
	ok             bool
	field, message string
}

func (p *Policy) timingChecks() []check {
	return []check{
		{within(p.AckTimeout, time.Second, maxAckTimeout), "ackTimeout", "must be between 1 s and 230 s"},
		{
			p.LateAnswerWindow == 0 || within(p.LateAnswerWindow, p.AckTimeout, time.Hour), "lateAnswerWindow",
			"must be 0, or between the ack timeout and 1 h",
		},
		{p.Basis == BasisGap || p.Basis == BasisOffset, "basis", "must be gap or offset"},
		{len(p.Steps) >= 1 && len(p.Steps) <= maxSteps, "steps", "must have 1 to 100 entries"},
		{allWithin(p.Steps, time.Second, maxTTL), "steps", "must each be between 1 s and 30 days"},
		{p.Basis == BasisGap || ascending(p.Steps), "steps", "must ascend, as marks after the first attempt do"},
		{within(p.Tail, time.Second, maxTTL), "tail", "must be between 1 s and 30 days"},
		{within(p.RetryWindow, 0, maxTTL), "retryWindow", "must be between 0 and 30 days"},
		{p.JitterFraction >= 0 && p.JitterFraction <= 1, "jitterFraction", "must be between 0 and 1"},
		{within(p.JitterCap, 0, time.Hour), "jitterCap", "must be between 0 and 1 h"},
		{p.Expiry == ExpiryAtTTL || p.Expiry == ExpiryNextAttempt, "expiry", "must be at_ttl or next_attempt"},
	}
}

func (p *Policy) limitChecks() []check {
	return []check{
		{wholeMinutes(p.DefaultTTL, p.MinTTL, p.MaxTTL), "defaultTTL", "and its range must be whole minutes"},
		{within(p.MinTTL, time.Minute, p.MaxTTL), "minTTL", "must be between 1 minute and maxTTL"},
		{p.MaxTTL <= maxTTL, "maxTTL", "must be 30 days or less"},
		{within(p.DefaultTTL, p.MinTTL, p.MaxTTL), "defaultTTL", "must be between minTTL and maxTTL"},
		{p.MinMaxAttempts >= 1 && p.MinMaxAttempts <= p.MaxMaxAttempts, "minMaxAttempts", "must be between 1 and maxMaxAttempts"},
		{p.MaxMaxAttempts <= maxAttempts, "maxMaxAttempts", "must be 1000 or less"},
		{
			p.DefaultMaxAttempts == 0 || p.DefaultMaxAttempts >= p.MinMaxAttempts && p.DefaultMaxAttempts <= p.MaxMaxAttempts,
			"defaultMaxAttempts", "must be 0 (no limit), or between minMaxAttempts and maxMaxAttempts",
		},
	}
}

func (p *Policy) optionChecks() []check {
	pr := p.Probation
	return []check{
		{p.DeadLetterDefault == DeadLetterNone || p.DeadLetterDefault == DeadLetterRows, "deadLetterDefault", "must be none or rows"},
		{within(p.DeadLetterDelay, 0, day), "deadLetterDelay", "must be between 0 and 24 h"},
		{within(p.DeadLetterGiveUp, 0, 2*day), "deadLetterGiveUp", "must be between 0 and 2 days"},
		{
			slices.Contains([]ProbationScope{ProbationNone, ProbationEndpoint, ProbationEventSubscription}, pr.Scope),
			"probation.scope", "must be none, endpoint or event_subscription",
		},
		{pr.Action == ProbationHold || pr.Action == ProbationDocumented, "probation.action", "must be hold or documented"},
		{pr.Scope == ProbationNone || pr.Trigger >= 1, "probation.trigger", "must be 1 or more"},
		{within(pr.First, 0, pr.Max) && pr.Max <= day, "probation.first", "must be between 0 and probation.max, which is 24 h at most"},
		{pr.Scope == ProbationNone || pr.First > 0 || len(pr.ByOutcome) > 0, "probation", "must say how long a hold lasts"},
		{validHolds(pr.ByOutcome), "probation.byOutcome", "must each be between 1 s and 24 h"},
	}
}

func within(d, least, most time.Duration) bool { return d >= least && d <= most }

func allWithin(steps []time.Duration, least, most time.Duration) bool {
	return !slices.ContainsFunc(steps, func(d time.Duration) bool { return !within(d, least, most) })
}

func ascending(marks []time.Duration) bool {
	for i := 1; i < len(marks); i++ {
		if marks[i] <= marks[i-1] {
			return false
		}
	}
	return true
}

func wholeMinutes(spans ...time.Duration) bool {
	return !slices.ContainsFunc(spans, func(d time.Duration) bool { return d%time.Minute != 0 })
}

func validHolds(holds map[Outcome]time.Duration) bool {
	for _, hold := range holds {
		if !within(hold, time.Second, day) {
			return false
		}
	}
	return true
}

func (p *Policy) validateCells() error {
	type key struct {
		kind      EndpointKind
		condition string
	}
	seen := make(map[key]bool, len(p.Cells))
	for i, c := range p.Cells {
		k := key{c.EndpointKind, c.Condition}
		if message := c.problem(); message != "" {
			return &ValidationError{fmt.Sprintf("cells[%d]", i), message}
		}
		if seen[k] {
			return &ValidationError{fmt.Sprintf("cells[%d]", i), fmt.Sprintf("repeats %s %s", c.EndpointKind, c.Condition)}
		}
		seen[k] = true
	}
	for _, kind := range []EndpointKind{KindWebhook, KindAzureResource} {
		if !seen[key{kind, conditionOther}] {
			return &ValidationError{"cells", fmt.Sprintf("must have %s %s, which answers what no other cell does", kind, conditionOther)}
		}
	}
	return nil
}

// problem says what is wrong with a cell, "" if nothing. Success needs an exact status: as the answer to "other" it would
// take every failure for a delivery.
func (c Cell) problem() string {
	status := exactStatus(c.Condition)
	switch {
	case c.EndpointKind != KindWebhook && c.EndpointKind != KindAzureResource:
		return "endpointKind must be webhook or azure-resource"
	case !status && c.Condition != conditionOther && !slices.Contains(errorConditions, c.Condition):
		return "condition must be a status from 200 to 599, other, or one of " + strings.Join(errorConditions, ", ")
	case !slices.Contains([]Action{ActionSuccess, ActionRetry, ActionNever, ActionNeverIfDeadLetter}, c.Action):
		return "action must be success, retry, never or never_if_dead_letter"
	case c.Action == ActionSuccess && !status:
		return "success must name an exact status"
	case !within(c.MinDelay, 0, day):
		return "minDelay must be between 0 and 24 h"
	default:
		return ""
	}
}

func exactStatus(condition string) bool {
	n, err := strconv.ParseUint(condition, 10, 16)
	return err == nil && n >= 200 && n <= 599 && len(condition) == 3
}
