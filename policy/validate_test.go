package policy_test

import (
	"math"
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

// policyChanges are made to a copy of ga-2021; field is what Validate then names, "" = nothing.
var policyChanges = []struct {
	name   string
	change func(*policy.Policy)
	field  string // "" = accepted
}{
	{"the copy as it is", func(*policy.Policy) {}, ""},
	{"230 s to answer", func(p *policy.Policy) { p.AckTimeout, p.LateResponseWindow = 230*time.Second, 0 }, ""},
	{"30 days to live", func(p *policy.Policy) { p.MaxTTL, p.DefaultTTL = 720*time.Hour, 720*time.Hour }, ""},
	{"1000 attempts", func(p *policy.Policy) { p.MaxMaxAttempts, p.DefaultMaxAttempts = 1000, 1000 }, ""},
	{"no limit of attempts", func(p *policy.Policy) { p.DefaultMaxAttempts = 0 }, ""},
	{"gaps that shrink", func(p *policy.Policy) { p.Steps = []time.Duration{time.Hour, time.Second} }, ""},
	{"no probation", func(p *policy.Policy) { p.Probation = policy.Probation{Scope: "none", Action: "hold"} }, ""},
	{"no name", func(p *policy.Policy) { p.Name = "" }, "name"},
	{"a reserved name", func(p *policy.Policy) { p.Name = "postrider.mine" }, "name"},
	{"no time to answer", func(p *policy.Policy) { p.AckTimeout = 0 }, "ackTimeoutInSeconds"},
	{"231 s to answer", func(p *policy.Policy) { p.AckTimeout = 231 * time.Second }, "ackTimeoutInSeconds"},
	{
		"late answers before the ack timeout", func(p *policy.Policy) { p.LateResponseWindow = time.Second },
		"lateResponseWindowInSeconds",
	},
	{"unknown basis", func(p *policy.Policy) { p.Basis = "moon" }, "basis"},
	{"no steps", func(p *policy.Policy) { p.Steps = nil }, "stepsInSeconds"},
	{
		"too many steps", func(p *policy.Policy) { p.Steps = slices.Repeat([]time.Duration{time.Hour}, 101) },
		"stepsInSeconds",
	},
	{"a step of 0", func(p *policy.Policy) { p.Steps[3] = 0 }, "stepsInSeconds[3]"},
	{
		"marks that go back", func(p *policy.Policy) { p.Basis, p.Steps[3] = policy.BasisOffset, time.Second },
		"stepsInSeconds[3]",
	},
	{
		"marks that stand", func(p *policy.Policy) { p.Basis, p.Steps[1] = policy.BasisOffset, p.Steps[0] },
		"stepsInSeconds[1]",
	},
	{"no tail", func(p *policy.Policy) { p.Tail = 0 }, "tailInSeconds"},
	{"a negative window", func(p *policy.Policy) { p.RetryWindow = -1 }, "retryWindowInSeconds"},
	{"half a step of jitter", func(p *policy.Policy) { p.JitterFraction = 0.5 }, ""},
	{"more than half a step of jitter", func(p *policy.Policy) { p.JitterFraction = 0.51 }, "jitterFraction"},
	{"jitter that is no number", func(p *policy.Policy) { p.JitterFraction = math.NaN() }, "jitterFraction"},
	{"a step of 7 days", func(p *policy.Policy) { p.Steps[8], p.Tail = 168*time.Hour, 168*time.Hour }, ""},
	{"a step of more", func(p *policy.Policy) { p.Steps[8] = 168*time.Hour + 1 }, "stepsInSeconds[8]"},
	{"a tail of more", func(p *policy.Policy) { p.Tail = 168*time.Hour + 1 }, "tailInSeconds"},
	{"a window of 31 days", func(p *policy.Policy) { p.RetryWindow = 31 * 24 * time.Hour }, "retryWindowInSeconds"},
	{"a long source", func(p *policy.Policy) { p.Source = strings.Repeat("a", 501) }, "source"},
	{"a source that moves the cursor", func(p *policy.Policy) { p.Source = "a\x1b[2J" }, "source"},
	{"a source that is no text", func(p *policy.Policy) { p.Source = "\xff" }, "source"},
	{"1000 failures", func(p *policy.Policy) { p.Probation.Trigger = 1000 }, ""},
	{"1001 failures", func(p *policy.Policy) { p.Probation.Trigger = 1001 }, "probation.trigger"},
	{"half a second of rest", func(p *policy.Policy) { p.Probation.First = time.Second / 2 }, "probation.firstInSeconds"},
	{"25 h of rest", func(p *policy.Policy) { p.Probation.Max = 25 * time.Hour }, "probation.maxInSeconds"},
	{"rest after a success", func(p *policy.Policy) {
		p.Probation.ByOutcome = map[policy.Outcome]time.Duration{"Delivered": time.Minute}
	}, "probation.byOutcome.Delivered"},
	{"negative jitter", func(p *policy.Policy) { p.JitterCap = -time.Second }, "jitterCapInSeconds"},
	{"unknown expiry", func(p *policy.Policy) { p.Expiry = "" }, "expiry"},
	{"half minutes to live", func(p *policy.Policy) { p.DefaultTTL = 90 * time.Second }, "eventTimeToLiveInMinutes"},
	{"no least time to live", func(p *policy.Policy) { p.MinTTL = 0 }, "eventTimeToLiveInMinutes.least"},
	{"31 days to live", func(p *policy.Policy) { p.MaxTTL = 31 * 24 * time.Hour }, "eventTimeToLiveInMinutes.most"},
	{"default above the range", func(p *policy.Policy) { p.MaxTTL = time.Hour }, "eventTimeToLiveInMinutes.default"},
	{"0 attempts", func(p *policy.Policy) { p.MinMaxAttempts = 0 }, "maxDeliveryAttempts.least"},
	{"1001 attempts", func(p *policy.Policy) { p.MaxMaxAttempts = 1001 }, "maxDeliveryAttempts.most"},
	{
		"default attempts above the range", func(p *policy.Policy) { p.DefaultMaxAttempts = 31 },
		"maxDeliveryAttempts.default",
	},
	{"unknown dead-letter default", func(p *policy.Policy) { p.DeadLetterDefault = "blob" }, "deadLetterDefault"},
	{"dead letters before they die", func(p *policy.Policy) { p.DeadLetterDelay = -1 }, "deadLetterDelayInSeconds"},
	{"no cap for Retry-After", func(p *policy.Policy) { p.RetryAfterCap = 0 }, "retryAfterCapInSeconds"},
	{"a cap of 8 days", func(p *policy.Policy) { p.RetryAfterCap = 192 * time.Hour }, "retryAfterCapInSeconds"},
	{"a cap of 7 days", func(p *policy.Policy) { p.RetryAfterCap = 168 * time.Hour }, ""},
	{
		"dead letters tried for 3 days", func(p *policy.Policy) { p.DeadLetterExportWindow = 72 * time.Hour },
		"deadLetterExportWindowInSeconds",
	},
	{"unknown probation scope", func(p *policy.Policy) { p.Probation.Scope = "topic" }, "probation.scope"},
	{"unknown probation action", func(p *policy.Policy) { p.Probation.Action = "kill" }, "probation.action"},
	{"probation without a trigger", func(p *policy.Policy) { p.Probation.Trigger = 0 }, "probation.trigger"},
	{
		"first hold above the longest", func(p *policy.Policy) { p.Probation.First = 5 * time.Hour },
		"probation.maxInSeconds",
	},
	{"probation that holds nothing", func(p *policy.Policy) { p.Probation.First = 0 }, "probation.firstInSeconds"},
	{
		"a hold of 0", func(p *policy.Policy) { p.Probation.ByOutcome = map[policy.Outcome]time.Duration{"Busy": 0} },
		"probation.byOutcome.Busy",
	},
	{
		"unknown endpoint kind", func(p *policy.Policy) { p.Cells[2].EndpointKind = "pigeon" }, "statusTable[2].endpointKind",
	},
	{"status 600", func(p *policy.Policy) { p.Cells[2].Condition = "600" }, "statusTable[2].condition"},
	{"status 199", func(p *policy.Policy) { p.Cells[2].Condition = "199" }, "statusTable[2].condition"},
	{"status with a zero in front", func(p *policy.Policy) { p.Cells[2].Condition = "0404" }, "statusTable[2].condition"},
	{"status with a sign", func(p *policy.Policy) { p.Cells[2].Condition = "+20" }, "statusTable[2].condition"},
	{"unknown condition", func(p *policy.Policy) { p.Cells[2].Condition = "rain" }, "statusTable[2].condition"},
	{"unknown action", func(p *policy.Policy) { p.Cells[2].Action = "" }, "statusTable[2].action"},
	{"negative wait", func(p *policy.Policy) { p.Cells[2].MinDelay = -1 }, "statusTable[2].minDelayInSeconds"},
	{
		"a wait of 25 h", func(p *policy.Policy) { p.Cells[2].MinDelay = 25 * time.Hour }, "statusTable[2].minDelayInSeconds",
	},
	{"the same cell twice", func(p *policy.Policy) { p.Cells[2] = p.Cells[1] }, "statusTable[2]"},
	{
		"everything else is a success", func(p *policy.Policy) { p.Cells[2] = cell("other", policy.ActionSuccess) },
		"statusTable[2].action",
	},
	{
		"a timeout is a success", func(p *policy.Policy) { p.Cells[2] = cell("timeout", policy.ActionSuccess) },
		"statusTable[2].action",
	},
	{
		"418 is a success", func(p *policy.Policy) { p.Cells[2] = cell("418", policy.ActionSuccess) },
		"statusTable[2].action",
	},
	{
		"300 is a success", func(p *policy.Policy) { p.Cells[2] = cell("300", policy.ActionSuccess) },
		"statusTable[2].action",
	},
	{"299 is a success", func(p *policy.Policy) { p.Cells[2] = cell("299", policy.ActionSuccess) }, ""},
	{"too many cells", func(p *policy.Policy) { p.Cells = slices.Repeat(p.Cells, 30) }, "statusTable"},
	{"nothing for everything else", func(p *policy.Policy) { p.Cells = p.Cells[:3] }, "statusTable"},
	{"no cells", func(p *policy.Policy) { p.Cells = nil }, "statusTable"},
}

func TestValidatePolicy(t *testing.T) {
	t.Parallel()
	for _, tt := range policyChanges {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := builtin(t, "ga-2021").Clone()
			p.Name, p.BuiltIn = "mine", false
			tt.change(&p)
			if tt.field == "" {
				require.NoError(t, p.Validate())
				return
			}
			requireField(t, p.Validate(), tt.field)
		})
	}
}

func TestMistakesAreAllNamed(t *testing.T) {
	t.Parallel()
	p := builtin(t, "namespace-2023").Clone()
	require.Empty(t, p.Mistakes())
	p.Name, p.AckTimeout, p.Steps[0], p.Expiry, p.MaxTTL, p.Probation.Scope, p.Cells[0].Action = "x", 0, 0,
		"never", 0, "", ""
	var fields []string
	for _, mistake := range p.Mistakes() {
		require.NotEmpty(t, mistake.Message)
		fields = append(fields, mistake.Field)
	}
	require.Equal(t, []string{
		"name", "ackTimeoutInSeconds", "stepsInSeconds[0]", "expiry", "eventTimeToLiveInMinutes.most",
		"eventTimeToLiveInMinutes.default",
		"probation.scope", "statusTable[0].action",
	}, fields)
	requireField(t, p.Validate(), "name")
}

func cell(condition string, action policy.Action) policy.Cell {
	return policy.Cell{EndpointKind: policy.KindWebhook, Condition: condition, Action: action}
}
