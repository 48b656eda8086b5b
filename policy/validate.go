package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"postrider/policy/filter"
)

// ValidationError says which property is invalid and why; see filter.ValidationError.
type ValidationError = filter.ValidationError

func invalid(field, message string) *ValidationError {
	return &ValidationError{Field: field, Message: message}
}

const (
	minNameLength, maxNameLength = 3, 64
	reservedPrefix               = "postrider."
)

// ValidName reports, as a *ValidationError on field, why s cannot name a topic, an event subscription or a policy.
func ValidName(field, s string) error {
	if !wellFormedName(s) {
		return invalid(field, fmt.Sprintf(
			"must be %d to %d characters: letters, digits, '.', '_' and '-', the first a letter or digit", minNameLength,
			maxNameLength))
	}
	if strings.HasPrefix(strings.ToLower(s), reservedPrefix) {
		return invalid(field, fmt.Sprintf("must not begin with %q, which is reserved", reservedPrefix))
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

// Bounds of a policy of one's own. 230 s is the longest an endpoint may take to answer: a call holds a worker that
// long.
const (
	maxAckTimeout = 230 * time.Second
	maxTTL        = 30 * day
	maxStep       = 7 * day
	maxAttempts   = 1000
	maxSteps      = 100
	maxTrigger    = 1000
	maxSource     = 500
	maxJitter     = 0.5
)

// Validate reports, as a *ValidationError, the first thing that keeps p from being a working policy. It is what a
// copied policy must pass before it is stored; the built-in ones pass it.
func (p *Policy) Validate() error {
	if mistakes := p.Mistakes(); len(mistakes) > 0 {
		return &mistakes[0]
	}
	return nil
}

// Mistakes lists everything that keeps p from being a working policy, nil if nothing does. Each names its property as
// the REST API spells it, and the range. It is empty where Validate returns nil.
func (p *Policy) Mistakes() []ValidationError {
	var found []ValidationError
	var name *ValidationError
	if errors.As(ValidName("name", p.Name), &name) {
		found = append(found, *name)
	}
	for _, check := range slices.Concat(p.timingChecks(), p.limitChecks(), p.optionChecks(), p.probationChecks()) {
		if !check.ok {
			found = append(found, *invalid(check.field, check.message))
		}
	}
	return append(found, p.cellMistakes()...)
}

type check struct {
	ok             bool
	field, message string
}

func (p *Policy) timingChecks() []check {
	return slices.Concat([]check{
		{printable(p.Source), "source", "must be UTF-8 of 500 bytes or less, without control characters"},
		{within(p.AckTimeout, time.Second, maxAckTimeout), "ackTimeoutInSeconds", "must be between 1 and 230"},
		{
			p.LateResponseWindow == 0 || within(p.LateResponseWindow, p.AckTimeout, time.Hour), "lateResponseWindowInSeconds",
			"must be 0, or between ackTimeoutInSeconds and 3600",
		},
		{p.Basis == BasisGap || p.Basis == BasisOffset, "basis", "must be gap or offset"},
		{len(p.Steps) >= 1 && len(p.Steps) <= maxSteps, "stepsInSeconds", "must have 1 to 100 entries"},
	}, p.stepChecks(), []check{
		{within(p.Tail, time.Second, maxStep), "tailInSeconds", "must be between 1 and 604800 (7 days)"},
		{within(p.RetryWindow, 0, maxTTL), "retryWindowInSeconds", "must be null (no such bound), or between 0 (none " +
			"either) and 2592000 (30 days)"},
		{p.JitterFraction >= 0 && p.JitterFraction <= maxJitter, "jitterFraction", "must be between 0 and 0.5"},
		{within(p.JitterCap, 0, time.Hour), "jitterCapInSeconds", "must be between 0 and 3600"},
		{p.Expiry == ExpiryAtTTL || p.Expiry == ExpiryNextAttempt, "expiry", "must be at_ttl or next_attempt"},
	})
}

// stepChecks name the step: among a hundred it would be hard to find. Those past the hundredth are not looked at.
func (p *Policy) stepChecks() []check {
	var checks []check
	for i, step := range p.Steps[:min(len(p.Steps), maxSteps)] {
		field := fmt.Sprintf("stepsInSeconds[%d]", i)
		checks = append(checks, check{within(step, time.Second, maxStep), field, "must be between 1 and 604800 (7 days)"})
		if p.Basis == BasisOffset && i > 0 {
			checks = append(checks,
				check{step > p.Steps[i-1], field, "must be more than the one before it, as marks after the first attempt are"})
		}
	}
	return checks
}

func (p *Policy) limitChecks() []check {
	const ttl, attempts = "eventTimeToLiveInMinutes", "maxDeliveryAttempts"
	return []check{
		{wholeMinutes(p.DefaultTTL, p.MinTTL, p.MaxTTL), ttl, "must be whole minutes"},
		{within(p.MinTTL, time.Minute, maxTTL), ttl + ".least", "must be between 1 and 43200 minutes (30 days)"},
		{within(p.MaxTTL, p.MinTTL, maxTTL), ttl + ".most", "must be between " + ttl + ".least and 43200 minutes (30 days)"},
		{within(p.DefaultTTL, p.MinTTL, p.MaxTTL), ttl + ".default", "must be between " + ttl + ".least and .most"},
		{p.MinMaxAttempts >= 1 && p.MinMaxAttempts <= maxAttempts, attempts + ".least", "must be between 1 and 1000"},
		{
			p.MaxMaxAttempts >= p.MinMaxAttempts && p.MaxMaxAttempts <= maxAttempts, attempts + ".most",
			"must be between " + attempts + ".least and 1000",
		},
		{
			p.DefaultMaxAttempts == 0 || p.DefaultMaxAttempts >= p.MinMaxAttempts && p.DefaultMaxAttempts <= p.MaxMaxAttempts,
			attempts + ".default", "must be null or 0 (no limit), or between " + attempts + ".least and .most",
		},
	}
}

func (p *Policy) optionChecks() []check {
	return []check{
		{within(p.RetryAfterCap, time.Second, maxStep), "retryAfterCapInSeconds", "must be between 1 and 604800 (7 days)"},
		{p.DeadLetterDefault == DeadLetterNone ||
			p.DeadLetterDefault == DeadLetterRows, "deadLetterDefault", "must be none or rows"},
		{within(p.DeadLetterDelay, 0, day), "deadLetterDelayInSeconds", "must be between 0 and 86400 (24 h)"},
		{
			within(p.DeadLetterExportWindow, 0, 2*day), "deadLetterExportWindowInSeconds", "must be between 0 and 172800 (48 h)",
		},
	}
}

func (p *Policy) probationChecks() []check {
	pr := p.Probation
	none, byOutcome := pr.Scope == ProbationNone, len(pr.ByOutcome) > 0
	checks := []check{
		{
			slices.Contains([]ProbationScope{ProbationNone, ProbationEndpoint, ProbationEventSubscription}, pr.Scope),
			"probation.scope", "must be none, endpoint or event_subscription",
		},
		{pr.Action == ProbationHold || pr.Action == ProbationDocumented, "probation.action", "must be hold or documented"},
		{none && pr.Trigger == 0 || pr.Trigger >= 1 && pr.Trigger <= maxTrigger, "probation.trigger", "must be between 1 " +
			"and 1000, or 0 where the scope is none"},
		{
			(none || byOutcome) && pr.First == 0 || within(pr.First, time.Second, day), "probation.firstInSeconds",
			"must be between 1 and 86400 (24 h), or 0 where the scope is none or byOutcome says how long",
		},
		{
			within(pr.Max, pr.First, day), "probation.maxInSeconds", "must be between probation.firstInSeconds and 86400 (24 h)",
		},
	}
	for _, outcome := range slices.Sorted(maps.Keys(pr.ByOutcome)) {
		field := "probation.byOutcome." + string(outcome)
		checks = append(checks,
			check{slices.Contains(causes, outcome), field, "is no cause of a probation; they are " + listed(causes)},
			check{within(pr.ByOutcome[outcome], time.Second, day), field, "must be between 1 and 86400 (24 h)"})
	}
	return checks
}

// causes are the outcomes that a hold can be for: those that a failed call may come to.
var causes = []Outcome{
	OutcomeBadRequest, OutcomeUnauthorized, OutcomeForbidden, OutcomeNotFound, OutcomeTimedOut, OutcomePayloadTooLarge,
	OutcomeBusy,
	OutcomeSocketError, OutcomeResolutionError, OutcomeCanceled, OutcomeGenericError, OutcomeDisabled, OutcomeFull,
	OutcomeInvalidAzureFunctionDestination,
}

func listed(outcomes []Outcome) string {
	names := make([]string, 0, len(outcomes))
	for _, o := range outcomes {
		names = append(names, string(o))
	}
	return strings.Join(names, ", ")
}

// printable reports whether s is text that can be stored and shown on one line.
func printable(s string) bool {
	return len(s) <= maxSource && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

func within(d, least, most time.Duration) bool { return d >= least && d <= most }

func wholeMinutes(spans ...time.Duration) bool {
	return !slices.ContainsFunc(spans, func(d time.Duration) bool { return d%time.Minute != 0 })
}

// maxCells is a cell for every status and error at each kind of endpoint, and more.
const maxCells = 1000

func (p *Policy) cellMistakes() []ValidationError {
	type key struct {
		kind      EndpointKind
		condition string
	}
	if len(p.Cells) > maxCells {
		return []ValidationError{*invalid("statusTable", fmt.Sprintf("must have %d entries or less", maxCells))}
	}
	var found []ValidationError
	seen := make(map[key]bool, len(p.Cells))
	for i, c := range p.Cells {
		k, field := key{c.EndpointKind, c.Condition}, fmt.Sprintf("statusTable[%d]", i)
		switch member, message := c.problem(); {
		case message != "":
			found = append(found, *invalid(field+"."+member, message))
		case seen[k]:
			found = append(found, *invalid(field, fmt.Sprintf("repeats %s %s", c.EndpointKind, c.Condition)))
		}
		seen[k] = true
	}
	for _, kind := range []EndpointKind{KindWebhook, KindAzureResource} {
		if !seen[key{kind, conditionOther}] {
			found = append(found, *invalid("statusTable",
				fmt.Sprintf("must have an entry for %s %s, which answers what no other entry does", kind, conditionOther)))
		}
	}
	return found
}

// problem says what is wrong with a cell, "" if nothing. Success needs an exact status of 200 to 299: as the answer to
// "other" it would take every failure for a delivery, and a 404 that counts as one is a typing mistake.
func (c Cell) problem() (member, message string) {
	status := exactStatus(c.Condition)
	switch {
	case c.EndpointKind != KindWebhook && c.EndpointKind != KindAzureResource:
		return "endpointKind", "must be webhook or azure-resource"
	case !status && c.Condition != conditionOther && !slices.Contains(errorConditions, c.Condition):
		return "condition", "must be a status from 200 to 599, other, or one of " + strings.Join(errorConditions, ", ")
	case !slices.Contains([]Action{ActionSuccess, ActionRetry, ActionNever, ActionNeverIfDeadLetter}, c.Action):
		return "action", "must be success, retry, never or never_if_dead_letter"
	case c.Action == ActionSuccess && (!status || c.Condition[0] != '2'):
		return "action", "must not be success but for a status from 200 to 299"
	case !within(c.MinDelay, 0, day):
		return "minDelayInSeconds", "must be between 0 and 86400 (24 h)"
	default:
		return "", ""
	}
}

func exactStatus(condition string) bool {
	n, err := strconv.ParseUint(condition, 10, 16)
	return err == nil && n >= 200 && n <= 599 && len(condition) == 3
}
