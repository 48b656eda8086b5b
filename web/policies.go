package web

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/internal/catalog/spec"
	"postrider/internal/postgres"
	"postrider/policy"
	"postrider/web/display"
	"postrider/web/site"
)

// policiesView has retry policies side by side.
type policiesView struct {
	Choices  []display.Share
	Policies []*policy.Policy
	Groups   []comparison
}

// comparison is a group of rows of the table.
type comparison struct {
	Name string
	Rows []comparedRow
}

// comparedRow is a setting or a status code, with its text in each policy.
type comparedRow struct {
	Name, Help string
	Cells      []string
}

// shownPolicies is the number of policies that fit side by side: as many are shown until others are chosen.
const shownPolicies = 5

// policies compares retry policies with the default policy, which is in the first column. A user's own policies
// precede the built-in ones.
func (p *pages) policies(ctx context.Context, c echo.Context) error {
	chosen := c.QueryParams()["policy"]
	rank := func(p *policy.Policy) int {
		switch {
		case p.Name == policy.DefaultName:
			return 0
		case !p.BuiltIn:
			return 1
		}
		return 2
	}
	all := slices.SortedStableFunc(slices.Values(p.Parts.Cache.Snapshot().Policies()),
		func(a, b *policy.Policy) int { return rank(a) - rank(b) })
	view := policiesView{}
	for i, candidate := range all {
		shown := i == 0 || slices.Contains(chosen, candidate.Name) || len(chosen) == 0 && i < shownPolicies
		view.Choices = append(view.Choices, display.Share{Name: candidate.Name, Here: shown})
		if shown {
			view.Policies = append(view.Policies, candidate)
		}
	}
	var err error
	if view.Groups, err = p.comparePolicies(ctx, c, view.Policies); err != nil {
		return err
	}
	for _, kind := range []policy.EndpointKind{policy.KindWebhook, policy.KindAzureResource} {
		view.Groups = append(view.Groups, comparison{"Status codes, " + string(kind), statusRows(view.Policies, kind)})
	}
	return p.Show(c, "policies", "Retry policies", false, view)
}

// comparePolicies compares the settings of policies by section.
func (p *pages) comparePolicies(
	ctx context.Context, c echo.Context, policies []*policy.Policy,
) (groups []comparison, err error) {
	settings := make([]map[string]json.RawMessage, len(policies))
	for i, shown := range policies {
		response, err := p.request(ctx, c, http.MethodGet, apiPolicy(shown.Name), nil)
		if err != nil {
			return nil, err
		}
		settings[i] = settingsIn(spec.Policy, response.body.Bytes())
	}
	for i := range spec.Policy {
		s := &spec.Policy[i]
		if s.Name == "source" || s.Name == "statusTable" { // they have separate rows
			continue
		}
		if len(groups) == 0 || groups[len(groups)-1].Name != s.Section {
			groups = append(groups, comparison{Name: s.Section})
		}
		group := &groups[len(groups)-1]
		if s.Name == "probation.byOutcome" {
			group.Rows = append(group.Rows, holdRows(s, settings)...)
			continue
		}
		row := comparedRow{Help: s.Help}
		row.Name, _, _ = strings.Cut(s.Label, " (") // the text has the unit
		for _, values := range settings {
			row.Cells = append(row.Cells, settingText(s, values[s.Name]))
		}
		group.Rows = append(group.Rows, row)
	}
	return groups, nil
}

// holdRows compares the holds of policies that differ by outcome, with a row for each outcome.
func holdRows(s *spec.Setting, settings []map[string]json.RawMessage) (rows []comparedRow) {
	holds := make([]map[string]float64, len(settings)) // in seconds
	outcomes := map[string]bool{}
	for i, values := range settings {
		_ = json.Unmarshal(values[s.Name], &holds[i]) // a policy without the setting has no value
		for outcome := range holds[i] {
			outcomes[outcome] = true
		}
	}
	for _, outcome := range slices.Sorted(maps.Keys(outcomes)) {
		row := comparedRow{Name: "Hold after " + outcome, Help: s.Help}
		for i := range holds {
			text := "no hold"
			if seconds, found := holds[i][outcome]; found {
				text = display.Span(time.Duration(seconds * float64(time.Second)))
			} else if len(holds[i]) == 0 {
				text = "as for each failure"
			}
			row.Cells = append(row.Cells, text)
		}
		rows = append(rows, row)
	}
	return rows
}

// settingWords are the words of the table for values of the API.
var settingWords = map[string]string{
	"basis gap": "wait after a failure", "basis offset": "time from the first attempt",
	"expiry at_ttl": "at the time to live", "expiry next_attempt": "when the next attempt is due",
	"deadLetterDefault rows": "keep a dead letter", "deadLetterDefault none": "drop the event",
	"probation.scope event_subscription": "event subscription",
	"probation.action hold":              "hold events", "probation.action documented": "dead-letter, as documented",
}

// settingText writes the value of a setting for the table.
func settingText(s *spec.Setting, value json.RawMessage) string {
	_, unit, _ := strings.Cut(s.Label, " (")
	long := map[string]time.Duration{"s)": time.Second, "min)": time.Minute}[unit]
	switch {
	case value == nil:
		return s.Default
	case long > 0:
		var spans []string
		for number := range strings.SplitSeq(fieldText(s, value), ", ") {
			n, _ := strconv.ParseFloat(number, 64) // the API writes a number
			spans = append(spans, display.Span(time.Duration(n*float64(long))))
		}
		return strings.Join(spans, ", ")
	case s.Kind == spec.Switch:
		return yes(string(value) == "true")
	case s.Name == "jitterFraction":
		fraction, _ := strconv.ParseFloat(string(value), 64)
		if fraction == 0 {
			return "none"
		}
		return "up to " + strconv.FormatFloat(100*fraction, 'f', -1, 64) + " % of a step"
	}
	text := fieldText(s, value)
	return cmp.Or(settingWords[s.Name+" "+text], text)
}

// statusRows compares the actions of policies for each condition: status codes first, then errors.
func statusRows(policies []*policy.Policy, kind policy.EndpointKind) (rows []comparedRow) {
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
		row := comparedRow{Name: conditions[key]}
		for _, p := range policies {
			row.Cells = append(row.Cells, display.StatusAction(p, kind, row.Name))
		}
		rows = append(rows, row)
	}
	return rows
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

// openPolicy is the form of a retry policy, or of a new one that copies another.
func (p *pages) openPolicy(ctx context.Context, c echo.Context) (*editor, error) {
	const list = "/ui/policies"
	name, from := c.Param("name"), c.QueryParam("from")
	if name != "" {
		from = name
	}
	if from == "" {
		return nil, postgres.ErrNotFound
	}
	e := &editor{
		table: spec.Policy, noun: "retry policy", name: name, address: apiPolicy, method: http.MethodPut,
		trail: []site.Link{{Href: list, Text: "Retry policies"}}, removed: list + "?done=policy-deleted",
		saved: func(name string, _ *apiResponse) (string, error) {
			return list + "?done=policy-saved&policy=" + name, nil
		},
		removal: func(context.Context) (forbidden, canceled string, err error) {
			if _, builtIn := policy.Builtin(name); builtIn {
				forbidden = "Built-in policies cannot be deleted."
			}
			return forbidden, "", nil
		},
	}
	if err := p.readStored(ctx, c, e, from); err != nil {
		return nil, err
	}
	if name == "" {
		e.stored["source"] = textJSON("Copied from " + from + ".")
	}
	return e, nil
}
