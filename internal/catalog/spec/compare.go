package spec

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"postrider/policy"
)

// Group is a section of a comparison of retry policies.
type Group struct {
	Name string
	Rows []Row
}

// Row is a setting, a status or an error, with its text under each policy.
type Row struct {
	Name, Help string
	Cells      []string
}

// Compare compares the settings of retry policies by section, without their sources and status tables. span writes a
// duration.
func Compare(policies []*policy.Policy, span func(time.Duration) string) (groups []Group) {
	settings := make([][]byte, len(policies))
	for i, p := range policies {
		settings[i], _ = json.Marshal(p) // has no value that cannot be written
	}
	for i := range Policy {
		s := &Policy[i]
		if s.Name == "source" || s.Name == "statusTable" {
			continue
		}
		if len(groups) == 0 || groups[len(groups)-1].Name != s.Section {
			groups = append(groups, Group{Name: s.Section})
		}
		group := &groups[len(groups)-1]
		if s.Name == "probation.byOutcome" {
			group.Rows = append(group.Rows, holdRows(policies, s.Help, span)...)
			continue
		}
		row := Row{Help: s.Help}
		row.Name, _, _ = strings.Cut(s.Label, " (") // the text has the unit
		for _, object := range settings {
			row.Cells = append(row.Cells, s.words(At(object, s.Name), span))
		}
		group.Rows = append(group.Rows, row)
	}
	return groups
}

// holdRows compares the holds of policies that differ by outcome, with a row for each outcome.
func holdRows(policies []*policy.Policy, help string, span func(time.Duration) string) (rows []Row) {
	outcomes := map[policy.Outcome]bool{}
	for _, p := range policies {
		for outcome := range p.Probation.ByOutcome {
			outcomes[outcome] = true
		}
	}
	for _, outcome := range slices.Sorted(maps.Keys(outcomes)) {
		row := Row{Name: "Hold after " + string(outcome), Help: help}
		for _, p := range policies {
			hold, found := p.Probation.ByOutcome[outcome]
			text := "no hold"
			switch {
			case p.Probation.Scope == policy.ProbationNone:
				text = "–"
			case found:
				text = span(time.Duration(hold))
			case len(p.Probation.ByOutcome) == 0:
				text = "as for each failure"
			case p.Probation.Scope == policy.ProbationBoth:
				text = "only of the endpoint"
			}
			row.Cells = append(row.Cells, text)
		}
		rows = append(rows, row)
	}
	return rows
}

// choiceWords are the words for values of settings.
var choiceWords = map[string]string{
	"basis gap": "wait after a failure", "basis offset": "time from the first attempt",
	"expiry at_ttl": "at the time to live", "expiry next_attempt": "when the next attempt is due",
	"deadLetterDefault rows": "keep a dead letter", "deadLetterDefault none": "drop the event",
	"probation.scope event_subscription": "event subscription", "probation.scope both": "endpoint, event subscription",
	"probation.action hold": "hold events", "probation.action documented": "dead-letter, as documented",
}

// words describes a value of the setting of a retry policy.
func (s *Setting) words(value json.RawMessage, span func(time.Duration) string) string {
	text := strings.Trim(string(value), `"[]`)
	_, unit, _ := strings.Cut(s.Label, " (")
	length := map[string]time.Duration{"s)": time.Second, "min)": time.Minute}[unit]
	switch {
	case value == nil:
		return s.Default
	case length > 0:
		var spans []string
		for number := range strings.SplitSeq(text, ",") {
			n, _ := strconv.ParseFloat(number, 64) // policies write numbers
			spans = append(spans, span(time.Duration(math.Round(n*float64(length)))))
		}
		return strings.Join(spans, ", ")
	case s.Kind == Switch:
		return map[string]string{"true": "yes", "false": "no"}[text]
	case s.Name == "jitterFraction":
		fraction, _ := strconv.ParseFloat(text, 64)
		if fraction == 0 {
			return "none"
		}
		return "up to " + strconv.FormatFloat(100*fraction, 'f', -1, 64) + " % of a step"
	}
	return cmp.Or(choiceWords[s.Name+" "+text], text)
}

// CompareStatuses compares the actions of policies for each condition: status codes first, then errors.
func CompareStatuses(
	policies []*policy.Policy, kind policy.EndpointKind, span func(time.Duration) string,
) (rows []Row) {
	conditions := map[string]string{} // by sort key
	for _, p := range policies {
		for _, cell := range p.Cells {
			if cell.EndpointKind != kind {
				continue
			}
			key := cell.Condition // digits sort before letters
			if key == "other" {
				key = "~"
			}
			conditions[key] = cell.Condition
		}
	}
	for _, key := range slices.Sorted(maps.Keys(conditions)) {
		row := Row{Name: conditions[key]}
		for _, p := range policies {
			row.Cells = append(row.Cells, statusAction(p, kind, row.Name, span))
		}
		rows = append(rows, row)
	}
	return rows
}

// statusAction is the action of a policy for a condition, or its action for "other".
func statusAction(
	p *policy.Policy, kind policy.EndpointKind, condition string, span func(time.Duration) string,
) string {
	result := policy.Result{Err: policy.ErrorKind(condition)}
	if status, err := strconv.Atoi(condition); err == nil {
		result = policy.Result{Status: status}
	}
	cell := p.Cell(kind, result)
	text := map[policy.Action]string{
		policy.ActionSuccess: "success", policy.ActionRetry: "retry", policy.ActionNever: "never retried",
		policy.ActionNeverIfDeadLetter: "never retried with dead-lettering",
	}[cell.Action]
	if cell.MinDelay > 0 && cell.Action != policy.ActionNever {
		text += " after at least " + span(time.Duration(cell.MinDelay))
	}
	return text
}
