package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"postrider/internal/filter"
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

// maxSteps and maxCells bound the lists of a policy. The status table has room for each status and error at each kind
// of endpoint.
const (
	maxSteps = 100
	maxCells = 1000
)

// Mistakes lists what is wrong with a copied policy beyond the ranges and choices of its settings, which the table
// Policy of package spec has. Each mistake names its property as the REST API spells it.
func (p *Policy) Mistakes() []ValidationError {
	var found []ValidationError
	check := func(ok bool, field, message string) {
		if !ok {
			found = append(found, *invalid(field, message))
		}
	}
	var name *ValidationError
	if errors.As(ValidName("name", p.Name), &name) {
		found = append(found, *name)
	}
	const ttl, attempts = "eventTimeToLiveInMinutes", "maxDeliveryAttempts"
	check(!strings.ContainsFunc(p.Source, unicode.IsControl), "source", "must have no control characters")
	check(p.LateResponseWindow == 0 || p.LateResponseWindow >= p.AckTimeout, "lateResponseWindowInSeconds",
		"must be 0 or at least ackTimeoutInSeconds")
	p.checkSteps(check)
	check(p.TTL.Most >= p.TTL.Least, ttl+".most", "must be at least "+ttl+".least")
	check(within(p.TTL.Default, p.TTL.Least, p.TTL.Most), ttl+".default",
		"must be between "+ttl+".least and .most")
	check(p.MaxAttempts.Most >= p.MaxAttempts.Least, attempts+".most", "must be at least "+attempts+".least")
	check(p.MaxAttempts.Default == 0 || within(p.MaxAttempts.Default, p.MaxAttempts.Least, p.MaxAttempts.Most),
		attempts+".default",
		"must be null or 0 (no limit), or between "+attempts+".least and .most")
	p.Probation.check(check)
	return append(found, p.cellMistakes()...)
}

func (p *Policy) checkSteps(check func(ok bool, field, message string)) {
	check(len(p.Steps) >= 1 && len(p.Steps) <= maxSteps, "stepsInSeconds",
		fmt.Sprintf("must have 1 to %d entries", maxSteps))
	if p.Basis != BasisOffset {
		return
	}
	for i := 1; i < min(len(p.Steps), maxSteps); i++ {
		check(p.Steps[i] > p.Steps[i-1], fmt.Sprintf("stepsInSeconds[%d]", i),
			"must be more than the one before it: basis offset counts from the first attempt")
	}
}

func (r *Probation) check(check func(ok bool, field, message string)) {
	if r.Scope == ProbationNone {
		r.checkNone(check)
		return
	}
	check(r.Trigger >= 1, "probation.trigger", "must be 1 or more, or 0 if the scope is none")
	check(r.Scope != ProbationBoth || len(r.ByOutcome) > 0, "probation.byOutcome",
		"must have an outcome if the scope is both: it has the holds of the event subscription")
	if len(r.ByOutcome) > 0 && r.Scope != ProbationBoth {
		const absent = "must be 0 or absent with byOutcome, which has the holds instead, unless the scope is both"
		check(r.First == 0, "probation.firstInSeconds", absent)
		check(r.Max == 0, "probation.maxInSeconds", absent)
	} else {
		check(r.First >= second, "probation.firstInSeconds",
			"must be 1 or more, or 0 if the scope is none, or byOutcome is set and the scope is not both")
		check(r.Max >= r.First, "probation.maxInSeconds", "must be at least probation.firstInSeconds")
	}
	for _, outcome := range slices.Sorted(maps.Keys(r.ByOutcome)) {
		field := "probation.byOutcome." + string(outcome)
		names := make([]string, 0, len(causes))
		for _, o := range causes {
			names = append(names, string(o))
		}
		check(slices.Contains(causes, outcome), field,
			"starts no probation: the outcomes that do are "+strings.Join(names, ", "))
		check(within(r.ByOutcome[outcome], second, day), field, "must be between 1 and 86400 (24 h)")
	}
}

// checkNone: without probation, its other settings would have no effect.
func (r *Probation) checkNone(check func(ok bool, field, message string)) {
	const absent = "must be 0 or absent if the scope is none: there is no probation"
	check(r.Trigger == 0, "probation.trigger", absent)
	check(r.First == 0, "probation.firstInSeconds", absent)
	check(r.Max == 0, "probation.maxInSeconds", absent)
	check(len(r.ByOutcome) == 0, "probation.byOutcome", "must be empty or absent if the scope is none")
	check(r.Action == ProbationHold, "probation.action", "must be hold or absent if the scope is none")
}

// causes are the outcomes that can start a probation, see Probation.Counts.
var causes = []Outcome{
	OutcomeBadRequest, OutcomeUnauthorized, OutcomeForbidden, OutcomeNotFound, OutcomeTimedOut, OutcomePayloadTooLarge,
	OutcomeBusy, OutcomeSocketError, OutcomeResolutionError, OutcomeGenericError, OutcomeDisabled, OutcomeFull,
	OutcomeSessionQueueNotSupported, OutcomeInvalidAzureFunctionDestination,
}

func within[T ~int | ~int64](n, least, most T) bool { return n >= least && n <= most }

// cellKey identifies a cell of a status table.
type cellKey struct {
	kind      EndpointKind
	condition string
}

func (p *Policy) cellMistakes() []ValidationError {
	if len(p.Cells) > maxCells {
		return []ValidationError{*invalid("statusTable", fmt.Sprintf("must have %d entries or less", maxCells))}
	}
	var found []ValidationError
	seen := make(map[cellKey]bool, len(p.Cells))
	for i, c := range p.Cells {
		k, field := cellKey{c.EndpointKind, c.Condition}, fmt.Sprintf("statusTable[%d]", i)
		switch member, message := c.problem(); {
		case message != "":
			found = append(found, *invalid(field+"."+member, message))
		case seen[k]:
			found = append(found, *invalid(field, fmt.Sprintf("repeats %s %s", c.EndpointKind, c.Condition)))
		}
		seen[k] = true
	}
	for _, kind := range []EndpointKind{KindWebhook, KindAzureResource} {
		found = append(found, p.kindMistakes(kind, seen)...)
	}
	return found
}

// kindMistakes checks the cells for one kind of endpoint together. seen has those of all kinds.
func (p *Policy) kindMistakes(kind EndpointKind, seen map[cellKey]bool) (found []ValidationError) {
	add := func(field, format string, args ...any) {
		found = append(found, *invalid(field, fmt.Sprintf(format, args...)))
	}
	if !seen[cellKey{kind, conditionOther}] {
		add("statusTable", "must have an entry for %s %s, for all that no other entry matches", kind, conditionOther)
	}
	if !slices.ContainsFunc(p.Cells, func(c Cell) bool { return c.EndpointKind == kind && c.Action == ActionSuccess }) {
		add("statusTable", "must have an entry for %s with action success, such as 200: no event could be delivered", kind)
	}
	errorIsOther := slices.ContainsFunc(transportErrors, func(e string) bool { return !seen[cellKey{kind, e}] })
	for i, c := range p.Cells {
		if c.EndpointKind == kind && c.Condition == conditionOther && c.neverAfterDelay() && !errorIsOther {
			add(fmt.Sprintf("statusTable[%d].minDelayInSeconds", i), "%s", noDelay(c.Action))
		}
	}
	return found
}

// neverAfterDelay reports a delay that only transport errors use: without a response, a cell that never retries a
// status may still retry, see RetryTransportErrors.
func (c Cell) neverAfterDelay() bool { return c.Action == ActionNever && c.MinDelay > 0 }

func noDelay(action Action) string {
	return fmt.Sprintf("must be 0 or absent with action %s: there is no retry", action)
}

// problem describes what is wrong with a cell; "" if nothing. Success needs an exact status of 200 to 299: under
// "other" every failure would count as delivered.
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
		return "action", "must not be success: only a status from 200 to 299 can be"
	case !within(c.MinDelay, 0, day):
		return "minDelayInSeconds", "must be between 0 and 86400 (24 h)"
	case c.Action == ActionSuccess && c.MinDelay > 0,
		(status || slices.Contains(brokerResponses, c.Condition)) && c.neverAfterDelay():
		return "minDelayInSeconds", noDelay(c.Action)
	default:
		return "", ""
	}
}

func exactStatus(condition string) bool {
	n, err := strconv.ParseUint(condition, 10, 16)
	return err == nil && n >= 200 && n <= 599 && len(condition) == 3
}
