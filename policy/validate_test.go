package policy_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"postrider/policy"

	"github.com/stretchr/testify/require"
)

func TestValidName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"abc", "0ab", "A-b_c.9", "a..", "a--", strings.Repeat("a", 64), "postrider", "postrider-events", "my.postrider.",
		"postride.r",
	} {
		require.NoError(t, policy.ValidName("name", name), name)
	}
	for _, name := range []string{
		"", "a", "ab", strings.Repeat("a", 65), ".abc", "-abc", "_abc", "a b", "a/b", "abc ", "ab\n", "abc\x00", "äbc",
		"ab%63", "abc:publish",
	} {
		invalid := requireField(t, policy.ValidName("topicName", name), "topicName")
		require.Equal(t, "must be 3 to 64 characters: letters, digits, '.', '_' and '-', the first a letter or digit",
			invalid.Message)
	}
	for _, name := range []string{"postrider.x", "Postrider.X", "POSTRIDER."} {
		invalid := requireField(t, policy.ValidName("name", name), "name")
		require.Equal(t, `must not begin with "postrider.", which is reserved`, invalid.Message)
		require.EqualError(t, &invalid, `name: must not begin with "postrider.", which is reserved`)
	}
}

type holds = policy.Holds

const (
	second = policy.Seconds(time.Second)
	minute = 60 * second
	hour   = 60 * minute

	minutes = policy.Minutes(time.Minute) // of times to live
)

// policyChanges are made to a copy of ga-2021. field is the setting that Mistakes names; "" = none.
var policyChanges = []struct {
	name   string
	change func(*policy.Policy)
	field  string
}{
	{"unchanged", func(*policy.Policy) {}, ""},
	{"no late responses", func(p *policy.Policy) { p.AckTimeout, p.LateResponseWindow = 230*second, 0 }, ""},
	{"30 days to live", func(p *policy.Policy) { p.TTL.Most, p.TTL.Default = 720*60*minutes, 720*60*minutes }, ""},
	{"no limit of attempts", func(p *policy.Policy) { p.MaxAttempts.Default = 0 }, ""},
	{"shrinking steps of basis gap", func(p *policy.Policy) { p.Steps = []policy.Seconds{hour, second} }, ""},
	{"no probation", func(p *policy.Policy) { p.Probation = policy.Probation{Scope: "none", Action: "hold"} }, ""},
	{"no name", func(p *policy.Policy) { p.Name = "" }, "name"},
	{"reserved name", func(p *policy.Policy) { p.Name = "postrider.mine" }, "name"},
	{"control characters in the source", func(p *policy.Policy) { p.Source = "a\x1b[2J" }, "source"},
	{"late before timeout", func(p *policy.Policy) { p.LateResponseWindow = 1 }, "lateResponseWindowInSeconds"},
	{"no steps", func(p *policy.Policy) { p.Steps = nil }, "stepsInSeconds"},
	{"101 steps", func(p *policy.Policy) { p.Steps = slices.Repeat([]policy.Seconds{hour}, 101) }, "stepsInSeconds"},
	{"descending offsets", func(p *policy.Policy) { p.Basis, p.Steps[3] = "offset", second }, "stepsInSeconds[3]"},
	{"equal offsets", func(p *policy.Policy) { p.Basis, p.Steps[1] = "offset", p.Steps[0] }, "stepsInSeconds[1]"},
	{"shortest above longest time to live", func(p *policy.Policy) { p.TTL.Most = 0 }, "eventTimeToLiveInMinutes.most"},
	{
		"too long to live by default", func(p *policy.Policy) { p.TTL.Most = 60 * minutes },
		"eventTimeToLiveInMinutes.default",
	},
	{"fewest above most attempts", func(p *policy.Policy) { p.MaxAttempts.Least = 31 }, "maxDeliveryAttempts.most"},
	{"too many default attempts", func(p *policy.Policy) { p.MaxAttempts.Default = 31 }, "maxDeliveryAttempts.default"},
	{"probation without a trigger", func(p *policy.Policy) { p.Probation.Trigger = 0 }, "probation.trigger"},
	{"half a second of hold", func(p *policy.Policy) { p.Probation.First = second / 2 }, "probation.firstInSeconds"},
	{"probation without a hold", func(p *policy.Policy) { p.Probation.First = 0 }, "probation.firstInSeconds"},
	{"first above longest hold", func(p *policy.Policy) { p.Probation.First = 5 * hour }, "probation.maxInSeconds"},
	{"holds by outcome", byOutcome(holds{"Busy": minute}), ""},
	{"probation after a success", byOutcome(holds{"Delivered": minute}), "probation.byOutcome.Delivered"},
	{"hold of 0", byOutcome(holds{"Busy": 0}), "probation.byOutcome.Busy"},
	{
		"holds by outcome beside a first hold", func(p *policy.Policy) { p.Probation.ByOutcome = holds{"Busy": minute} },
		"probation.firstInSeconds",
	},
	{"hold by an outcome of brokers", byOutcome(holds{"SessionQueueNotSupported": minute}), ""},
	{"hold by a canceled attempt", byOutcome(holds{"Canceled": minute}), "probation.byOutcome.Canceled"},
	{"hold by an attempt in progress", byOutcome(holds{"Delivering": minute}), "probation.byOutcome.Delivering"},
	{"both, without holds by outcome", bothProbations(0, nil), "probation.byOutcome"},
	{"both", bothProbations(minute, holds{"Busy": minute}), ""},
	{"both, without a first hold", bothProbations(0, holds{"Busy": minute}), "probation.firstInSeconds"},
	{"no probation, with a trigger", noProbation(policy.Probation{Trigger: 1}), "probation.trigger"},
	{"no probation, with a first hold", noProbation(policy.Probation{First: 1, Max: 1}), "probation.firstInSeconds"},
	{"no probation, with a longest hold", noProbation(policy.Probation{Max: 1}), "probation.maxInSeconds"},
	{
		"no probation, with holds by outcome", noProbation(policy.Probation{ByOutcome: holds{"Busy": minute}}),
		"probation.byOutcome",
	},
	{"no probation, with an action", noProbation(policy.Probation{Action: "documented"}), "probation.action"},
	{"unknown kind", func(p *policy.Policy) { p.Cells[2].EndpointKind = "pigeon" }, "statusTable[2].endpointKind"},
	{"status 600", func(p *policy.Policy) { p.Cells[2].Condition = "600" }, "statusTable[2].condition"},
	{"status 199", func(p *policy.Policy) { p.Cells[2].Condition = "199" }, "statusTable[2].condition"},
	{"status with a leading zero", func(p *policy.Policy) { p.Cells[2].Condition = "0404" }, "statusTable[2].condition"},
	{"status with a sign", func(p *policy.Policy) { p.Cells[2].Condition = "+20" }, "statusTable[2].condition"},
	{"unknown condition", func(p *policy.Policy) { p.Cells[2].Condition = "rain" }, "statusTable[2].condition"},
	{"unknown action", func(p *policy.Policy) { p.Cells[2].Action = "" }, "statusTable[2].action"},
	{"negative delay", func(p *policy.Policy) { p.Cells[2].MinDelay = -1 }, "statusTable[2].minDelayInSeconds"},
	{"delay of 25 h", func(p *policy.Policy) { p.Cells[2].MinDelay = 25 * hour }, "statusTable[2].minDelayInSeconds"},
	{"delay of a success", func(p *policy.Policy) { p.Cells[2].MinDelay = 1 }, "statusTable[2].minDelayInSeconds"},
	{"delay of a status never retried", neverAfter("400", second), "statusTable[5].minDelayInSeconds"},
	{"delay of an error never retried", neverAfter("timeout", second), ""},
	{"delay of a broker's response never retried", neverAfter("full", second), "statusTable[19].minDelayInSeconds"},
	{"a broker's response never retried", neverAfter("session", 0), ""},
	{"delay of other statuses never retried", neverAfter("other", second), "statusTable[12].minDelayInSeconds"},
	{"delay of other statuses and an error", func(p *policy.Policy) {
		neverAfter("other", second)(p)
		p.Cells = slices.DeleteFunc(p.Cells, func(c policy.Cell) bool { return c.Condition == "timeout" })
	}, ""},
	{"delay of other statuses and a broker's response", func(p *policy.Policy) {
		neverAfter("other", second)(p)
		p.Cells = slices.DeleteFunc(p.Cells, func(c policy.Cell) bool { return c.Condition == "full" })
	}, "statusTable[12].minDelayInSeconds"},
	{"success for a broker's full queue", func(p *policy.Policy) {
		p.Cells[2] = cell("full", "success")
	}, "statusTable[2].action"},
	{"webhooks without success", withoutSuccess(policy.KindWebhook), "statusTable"},
	{"Azure's resources without success", withoutSuccess(policy.KindAzureResource), "statusTable"},
	{"duplicate cell", func(p *policy.Policy) { p.Cells[2] = p.Cells[1] }, "statusTable[2]"},
	{"success for others", func(p *policy.Policy) { p.Cells[2] = cell("other", "success") }, "statusTable[2].action"},
	{"success for a timeout", func(p *policy.Policy) { p.Cells[2] = cell("timeout", "success") }, "statusTable[2].action"},
	{"success for 418", func(p *policy.Policy) { p.Cells[2] = cell("418", "success") }, "statusTable[2].action"},
	{"success for 300", func(p *policy.Policy) { p.Cells[2] = cell("300", "success") }, "statusTable[2].action"},
	{"success for 299", func(p *policy.Policy) { p.Cells[2] = cell("299", policy.ActionSuccess) }, ""},
	{"too many cells", func(p *policy.Policy) { p.Cells = slices.Repeat(p.Cells, 30) }, "statusTable"},
	{"no entry for all other statuses", func(p *policy.Policy) { p.Cells = p.Cells[:3] }, "statusTable"},
	{"no cells", func(p *policy.Policy) { p.Cells = nil }, "statusTable"},
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for _, tt := range policyChanges {
		p := builtin(t, "ga-2021").Clone()
		p.Name, p.BuiltIn = "mine", false
		tt.change(&p)
		if tt.field == "" {
			require.Empty(t, p.Mistakes(), tt.name)
			continue
		}
		require.NotEmpty(t, p.Mistakes(), tt.name)
		require.Equal(t, tt.field, p.Mistakes()[0].Field, tt.name)
	}
}

// The message names when the value 0, which it rejects, is allowed.
func TestMistakeOfAFirstHold(t *testing.T) {
	t.Parallel()
	p := builtin(t, "ga-2026").Clone()
	p.Name, p.BuiltIn, p.Probation.First = "mine", false, 0
	require.Equal(t, []policy.ValidationError{{
		Field:   "probation.firstInSeconds",
		Message: "must be 1 or more, or 0 if the scope is none, or byOutcome is set and the scope is not both",
	}}, p.Mistakes())
}

func TestMistakesListsEveryField(t *testing.T) {
	t.Parallel()
	p := builtin(t, "namespace-2023").Clone()
	p.Name, p.Steps[1], p.TTL.Most, p.Probation.Trigger, p.Cells[0].Action = "x", 0, 0, 0, ""
	var fields []string
	for _, mistake := range p.Mistakes() {
		require.NotEmpty(t, mistake.Message)
		fields = append(fields, mistake.Field)
	}
	require.Equal(t, []string{
		"name", "stepsInSeconds[1]", "eventTimeToLiveInMinutes.most", "eventTimeToLiveInMinutes.default",
		"probation.trigger", "statusTable[0].action",
	}, fields)
}

func byOutcome(by holds) func(*policy.Policy) {
	return func(p *policy.Policy) { p.Probation.First, p.Probation.Max, p.Probation.ByOutcome = 0, 0, by }
}

func bothProbations(first policy.Seconds, by policy.Holds) func(*policy.Policy) {
	return func(p *policy.Policy) {
		p.Probation.Scope, p.Probation.First, p.Probation.ByOutcome = policy.ProbationBoth, first, by
	}
}

func noProbation(rule policy.Probation) func(*policy.Policy) {
	rule.Scope, rule.Action = policy.ProbationNone, cmp.Or(rule.Action, policy.ProbationHold)
	return func(p *policy.Policy) { p.Probation = rule }
}

func neverAfter(condition string, delay policy.Seconds) func(*policy.Policy) {
	return func(p *policy.Policy) {
		i := slices.IndexFunc(p.Cells, func(c policy.Cell) bool { return c.Condition == condition })
		p.Cells[i].Action, p.Cells[i].MinDelay = policy.ActionNever, delay
	}
}

func withoutSuccess(kind policy.EndpointKind) func(*policy.Policy) {
	return func(p *policy.Policy) {
		p.Cells = slices.DeleteFunc(p.Cells, func(c policy.Cell) bool {
			return c.EndpointKind == kind && c.Action == policy.ActionSuccess
		})
	}
}

func cell(condition string, action policy.Action) policy.Cell {
	return policy.Cell{EndpointKind: policy.KindWebhook, Condition: condition, Action: action}
}
