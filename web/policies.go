package web

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/catalog"
	"postrider/policy"
	"postrider/web/display"
)

// policiesView is what policies.html shows: retry policies beside one another.
type policiesView struct {
	Choices []choice
	Names   []string
	Sources []string
	Groups  []comparison
	Deeds   []policyDeeds
}

// policyDeeds is what may be done to a policy: every one can be copied, and one's own changed.
type policyDeeds struct {
	Name string
	Own  bool
}

// comparison is a part of the table.
type comparison struct {
	Name string
	Rows []comparedRow
}

type comparedRow struct {
	Name   string
	Cells  []comparedCell
	Differ bool // the policies do not all say the same
}

type comparedCell struct {
	Text  string
	Other bool // differs from the default policy
}

// shownPolicies is how many fit beside one another.
const shownPolicies = 5

func (p *pages) policies(c echo.Context) error {
	all := p.parts.Cache.Snapshot().Policies()
	wanted := c.QueryParams()["policy"]
	var shown []*policy.Policy
	view := policiesView{}
	for _, candidate := range all {
		here := slices.Contains(wanted, candidate.Name) || len(wanted) == 0
		if here = here && len(shown) < shownPolicies; here {
			shown = append(shown, candidate)
		}
		view.Choices = append(view.Choices, choice{candidate.Name, here || candidate.Name == policy.DefaultName})
	}
	shown = withDefaultFirst(shown, p.parts.Cache.Snapshot())
	for _, candidate := range shown {
		view.Names, view.Sources = append(view.Names, candidate.Name), append(view.Sources, candidate.Source)
		view.Deeds = append(view.Deeds, policyDeeds{candidate.Name, !candidate.BuiltIn})
	}
	view.Groups = comparisonsOf(shown)
	return p.show(c, "policies", "Retry policies", false, view)
}

// withDefaultFirst puts the default policy first: the others are compared with it. It is added if it was not chosen,
// and replaces the last of as many as fit.
func withDefaultFirst(shown []*policy.Policy, catalogue *catalog.Snapshot) []*policy.Policy {
	byDefault, ok := catalogue.Policy(policy.DefaultName)
	if !ok {
		return shown
	}
	others := slices.DeleteFunc(slices.Clone(shown), func(p *policy.Policy) bool { return p.Name == byDefault.Name })
	return append([]*policy.Policy{byDefault}, others[:min(len(others), shownPolicies-1)]...)
}

// property is a row of the comparison.
type property struct {
	name string
	text func(p *policy.Policy) string
}

func comparisonsOf(policies []*policy.Policy) []comparison {
	return []comparison{
		{"Schedule", compare(policies, scheduleProperties)},
		{"Limits", compare(policies, limitProperties)},
		{"What is given up", compare(policies, endProperties)},
		{"Probation", compare(policies, probationProperties)},
		{"Status codes, webhook", compare(policies, cellProperties(policies, policy.KindWebhook))},
		{"Status codes, azure-resource", compare(policies, cellProperties(policies, policy.KindAzureResource))},
	}
}

func compare(policies []*policy.Policy, properties []property) []comparedRow {
	rows := make([]comparedRow, 0, len(properties))
	for _, property := range properties {
		row := comparedRow{Name: property.name}
		for _, p := range policies {
			cell := comparedCell{Text: property.text(p)}
			cell.Other = len(row.Cells) > 0 && cell.Text != row.Cells[0].Text
			row.Differ = row.Differ || cell.Other
			row.Cells = append(row.Cells, cell)
		}
		rows = append(rows, row)
	}
	return rows
}

var scheduleProperties = []property{
	{"Ack timeout", func(p *policy.Policy) string { return display.Span(p.AckTimeout) }},
	{"Steps", func(p *policy.Policy) string { return spans(p.Steps) }},
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
		return fmt.Sprintf("up to %s %%, at most %s", strconv.FormatFloat(100*p.JitterFraction, 'f', -1, 64),
			display.Span(p.JitterCap))
	}},
	{"No attempt later than", func(p *policy.Policy) string { return spanOr(p.RetryWindow, "no such limit") }},
	{"Retry-After, documented", func(p *policy.Policy) string { return yes(p.HonorRetryAfter) }},
	{"Retry-After, at most", func(p *policy.Policy) string { return display.Span(p.RetryAfterCap) }},
	{"Late success counts for", func(p *policy.Policy) string { return spanOr(p.LateAnswerWindow, "not at all") }},
	{"Batches", func(p *policy.Policy) string { return yes(p.Batching) }},
}

var limitProperties = []property{
	{"Attempts", func(p *policy.Policy) string {
		if p.DefaultMaxAttempts == 0 {
			return "no limit"
		}
		return strconv.Itoa(p.DefaultMaxAttempts)
	}},
	{"Attempts that may be set", func(p *policy.Policy) string {
		return fmt.Sprintf("%d to %d", p.MinMaxAttempts,
			p.MaxMaxAttempts)
	}},
	{"Time to live", func(p *policy.Policy) string { return display.Span(p.DefaultTTL) }},
	{"Time to live that may be set", func(p *policy.Policy) string {
		return display.Span(p.MinTTL) + " to " +
			display.Span(p.MaxTTL)
	}},
	{"Expires", func(p *policy.Policy) string {
		return map[policy.Expiry]string{
			policy.ExpiryAtTTL: "at that moment", policy.ExpiryNextAttempt: "at the next attempt's turn",
		}[p.Expiry]
	}},
}

var endProperties = []property{
	{"Dead letters, documented", func(p *policy.Policy) string {
		return map[string]string{
			policy.DeadLetterRows: "kept as rows", policy.DeadLetterNone: "none: dropped",
		}[p.DeadLetterDefault]
	}},
	{"Outside location after", func(p *policy.Policy) string { return display.Span(p.DeadLetterDelay) }},
	{"Outside location tried for", func(p *policy.Policy) string { return display.Span(p.DeadLetterGiveUp) }},
	{"Transport errors, documented", func(p *policy.Policy) string {
		return map[bool]string{true: "retried", false: "as the table says"}[p.RetryTransportErrors]
	}},
}

var probationProperties = []property{
	{"Rests", func(p *policy.Policy) string {
		return map[policy.ProbationScope]string{
			policy.ProbationNone: "nothing", policy.ProbationEndpoint: "the endpoint",
			policy.ProbationEventSubscription: "the event subscription",
		}[p.Probation.Scope]
	}},
	{"After failures in a row", func(p *policy.Policy) string { return resting(p, strconv.Itoa(p.Probation.Trigger)) }},
	{"First rest", func(p *policy.Policy) string { return resting(p, spanOr(p.Probation.First, "by outcome")) }},
	{"Longest rest", func(p *policy.Policy) string { return resting(p, spanOr(p.Probation.Max, "by outcome")) }},
	{"Rest by outcome", func(p *policy.Policy) string {
		var parts []string
		for outcome, rest := range p.Probation.ByOutcome {
			parts = append(parts, string(outcome)+" "+display.Span(rest))
		}
		slices.Sort(parts)
		return spanText(strings.Join(parts, ", "), "no")
	}},
	{"Meanwhile, documented", func(p *policy.Policy) string { return resting(p, string(p.Probation.Action)) }},
}

// cellProperties are the conditions that any of the policies names.
func cellProperties(policies []*policy.Policy, kind policy.EndpointKind) []property {
	var conditions []string
	for _, p := range policies {
		for _, cell := range p.Cells {
			if cell.EndpointKind == kind && !slices.Contains(conditions, cell.Condition) {
				conditions = append(conditions, cell.Condition)
			}
		}
	}
	slices.SortFunc(conditions, func(a, b string) int { return strings.Compare(conditionOrder(a), conditionOrder(b)) })
	properties := make([]property, len(conditions))
	for i, condition := range conditions {
		properties[i] = property{condition, func(p *policy.Policy) string { return cellText(p, kind, condition) }}
	}
	return properties
}

// conditionOrder sorts statuses first, errors next, the rest last.
func conditionOrder(condition string) string {
	switch {
	case condition[0] >= '0' && condition[0] <= '9':
		return "0" + condition
	case condition == "other":
		return "2"
	default:
		return "1" + condition
	}
}

func cellText(p *policy.Policy, kind policy.EndpointKind, condition string) string {
	at := func(condition string) *policy.Cell {
		for i := range p.Cells {
			if p.Cells[i].EndpointKind == kind && p.Cells[i].Condition == condition {
				return &p.Cells[i]
			}
		}
		return nil
	}
	cell := at(condition)
	if cell == nil {
		if cell = at("other"); cell == nil {
			return "retry"
		}
	}
	text := map[policy.Action]string{
		policy.ActionSuccess: "success", policy.ActionRetry: "retry", policy.ActionNever: "never retried",
		policy.ActionNeverIfDeadLetter: "never retried where dead letters are kept",
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

func resting(p *policy.Policy, text string) string {
	if p.Probation.Scope == policy.ProbationNone {
		return "–"
	}
	return text
}

func spanOr(d time.Duration, none string) string {
	if d == 0 {
		return none
	}
	return display.Span(d)
}

func spanText(text, none string) string {
	if text == "" {
		return none
	}
	return text
}

func spans(list []time.Duration) string {
	parts := make([]string, len(list))
	for i, d := range list {
		parts[i] = display.Span(d)
	}
	return strings.Join(parts, ", ")
}
