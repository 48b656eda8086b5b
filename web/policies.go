package web

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/policy"
	"postrider/web/display"
)

// policiesView is what policies.html shows: retry policies side by side.
type policiesView struct {
	Choices  []policyChoice
	Policies []*policy.Policy
	Groups   []comparison
}

type policyChoice struct {
	Name string
	Here bool
}

// comparison is a part of the table.
type comparison struct {
	Name string
	Rows []comparedRow
}

// comparedRow is a property: its text in each policy.
type comparedRow struct {
	Name  string
	Cells []string
}

// shownPolicies is the number of policies that fit side by side.
const shownPolicies = 5

// policies compares policies with the default policy, which is the first.
func (p *pages) policies(_ context.Context, c echo.Context) error {
	wanted := c.QueryParams()["policy"]
	view := policiesView{}
	for _, candidate := range p.parts.Cache.Snapshot().Policies() {
		byDefault := candidate.Name == policy.DefaultName
		here := byDefault || len(wanted) == 0 || slices.Contains(wanted, candidate.Name)
		switch {
		case byDefault:
			view.Policies = slices.Insert(view.Policies, 0, candidate)
		case here:
			view.Policies = append(view.Policies, candidate)
		}
		view.Choices = append(view.Choices, policyChoice{candidate.Name, here})
	}
	view.Policies = view.Policies[:min(len(view.Policies), shownPolicies)]
	for _, group := range slices.Concat(policyProperties, []propertyGroup{
		{"Status codes, webhook", statusProperties(view.Policies, policy.KindWebhook)},
		{"Status codes, azure-resource", statusProperties(view.Policies, policy.KindAzureResource)},
	}) {
		compared := comparison{Name: group.name}
		for _, property := range group.properties {
			row := comparedRow{Name: property.name}
			for _, p := range view.Policies {
				row.Cells = append(row.Cells, property.text(p))
			}
			compared.Rows = append(compared.Rows, row)
		}
		view.Groups = append(view.Groups, compared)
	}
	return p.show(c, "policies", "Retry policies", false, view)
}

// property is a row of the comparison.
type property struct {
	name string
	text func(p *policy.Policy) string
}

type propertyGroup struct {
	name       string
	properties []property
}

var policyProperties = []propertyGroup{
	{"Schedule", []property{
		{"Ack timeout", func(p *policy.Policy) string { return display.Span(p.AckTimeout) }},
		{"Steps", func(p *policy.Policy) string {
			var steps []string
			for _, step := range p.Steps {
				steps = append(steps, display.Span(step))
			}
			return strings.Join(steps, ", ")
		}},
		{"Then every", func(p *policy.Policy) string { return display.Span(p.Tail) }},
		{"Measured", func(p *policy.Policy) string {
			return map[policy.Basis]string{
				policy.BasisGap: "from the failure", policy.BasisOffset: "from the first attempt",
			}[p.Basis]
		}},
		{"Jitter", func(p *policy.Policy) string {
			if p.JitterFraction == 0 {
				return "none"
			}
			return fmt.Sprintf("up to %g %%, at most %s", 100*p.JitterFraction, display.Span(p.JitterCap))
		}},
		{"No attempt later than", func(p *policy.Policy) string { return spanOr(p.RetryWindow, "no such limit") }},
		{"Retry-After, documented", func(p *policy.Policy) string { return yes(p.HonorRetryAfter) }},
		{"Retry-After, at most", func(p *policy.Policy) string { return display.Span(p.RetryAfterCap) }},
		{"Late success counts for", func(p *policy.Policy) string { return spanOr(p.LateAnswerWindow, "not at all") }},
		{"Batches", func(p *policy.Policy) string { return yes(p.Batching) }},
	}},
	{"Limits", []property{
		{"Attempts", func(p *policy.Policy) string {
			if p.DefaultMaxAttempts == 0 {
				return "no limit"
			}
			return strconv.Itoa(p.DefaultMaxAttempts)
		}},
		{"Attempts that may be set", func(p *policy.Policy) string {
			return fmt.Sprintf("%d to %d", p.MinMaxAttempts, p.MaxMaxAttempts)
		}},
		{"Time to live", func(p *policy.Policy) string { return display.Span(p.DefaultTTL) }},
		{"Time to live that may be set", func(p *policy.Policy) string {
			return display.Span(p.MinTTL) + " to " + display.Span(p.MaxTTL)
		}},
		{"Expires", func(p *policy.Policy) string {
			return map[policy.Expiry]string{
				policy.ExpiryAtTTL: "at that moment", policy.ExpiryNextAttempt: "when the next attempt is due",
			}[p.Expiry]
		}},
	}},
	{"End", []property{
		{"Dead letters, documented", func(p *policy.Policy) string {
			return map[string]string{
				policy.DeadLetterRows: "kept as rows", policy.DeadLetterNone: "none: dropped",
			}[p.DeadLetterDefault]
		}},
		{"Export after", func(p *policy.Policy) string { return display.Span(p.DeadLetterDelay) }},
		{"Export retried for", func(p *policy.Policy) string { return display.Span(p.DeadLetterGiveUp) }},
		{"Transport errors, documented", func(p *policy.Policy) string {
			return map[bool]string{true: "retried", false: "by the status codes"}[p.RetryTransportErrors]
		}},
	}},
	{"Probation", []property{
		{"Applies to", func(p *policy.Policy) string {
			return map[policy.ProbationScope]string{
				policy.ProbationNone: "nothing", policy.ProbationEndpoint: "the endpoint",
				policy.ProbationEventSubscription: "the event subscription",
			}[p.Probation.Scope]
		}},
		{"After failures in a row", onProbation(func(p *policy.Probation) string { return strconv.Itoa(p.Trigger) })},
		{"First probation", onProbation(func(p *policy.Probation) string { return spanOr(p.First, "by outcome") })},
		{"Longest probation", onProbation(func(p *policy.Probation) string { return spanOr(p.Max, "by outcome") })},
		{"By outcome", func(p *policy.Policy) string {
			var parts []string
			for _, outcome := range slices.Sorted(maps.Keys(p.Probation.ByOutcome)) {
				parts = append(parts, string(outcome)+" "+display.Span(p.Probation.ByOutcome[outcome]))
			}
			return cmp.Or(strings.Join(parts, ", "), "no")
		}},
		{"Meanwhile, documented", onProbation(func(p *policy.Probation) string { return string(p.Action) })},
	}},
}

// statusProperties are the conditions that any of the policies names: status codes first, then errors.
func statusProperties(policies []*policy.Policy, kind policy.EndpointKind) (properties []property) {
	conditions := map[string]string{} // by a text to sort by
	for _, p := range policies {
		for _, cell := range p.Cells {
			if cell.EndpointKind != kind {
				continue
			}
			rank := "1"
			switch {
			case cell.Condition[0] >= '0' && cell.Condition[0] <= '9':
				rank = "0"
			case cell.Condition == "other":
				rank = "2"
			}
			conditions[rank+cell.Condition] = cell.Condition
		}
	}
	for _, key := range slices.Sorted(maps.Keys(conditions)) {
		condition := conditions[key]
		properties = append(properties,
			property{condition, func(p *policy.Policy) string { return statusText(p, kind, condition) }})
	}
	return properties
}

// statusText says what a policy does on a condition; without an entry for it, what it does on "other".
func statusText(p *policy.Policy, kind policy.EndpointKind, condition string) string {
	at := func(condition string) int {
		return slices.IndexFunc(p.Cells, func(cell policy.Cell) bool {
			return cell.EndpointKind == kind && cell.Condition == condition
		})
	}
	i := at(condition)
	if i < 0 {
		i = at("other")
	}
	if i < 0 {
		return "retry"
	}
	cell := p.Cells[i]
	text := map[policy.Action]string{
		policy.ActionSuccess: "success", policy.ActionRetry: "retry", policy.ActionNever: "never retried",
		policy.ActionNeverIfDeadLetter: "never retried if dead letters are kept",
	}[cell.Action]
	if cell.MinDelay > 0 && cell.Action != policy.ActionNever {
		text += " after " + display.Span(cell.MinDelay) + " or later"
	}
	return text
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

// onProbation is a property of policies that have a probation.
func onProbation(text func(*policy.Probation) string) func(*policy.Policy) string {
	return func(p *policy.Policy) string {
		if p.Probation.Scope == policy.ProbationNone {
			return "–"
		}
		return text(&p.Probation)
	}
}

func spanOr(d time.Duration, none string) string {
	if d == 0 {
		return none
	}
	return display.Span(d)
}
