package policy_test

import (
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
		"abc", "0ab", "A-b_c.9", "a..", "a--", strings.Repeat("a", 64), "postrider", "postrider-events", "my.postrider.", "postride.r",
	} {
		require.NoError(t, policy.ValidName("name", name), name)
	}
	for _, name := range []string{
		"", "a", "ab", strings.Repeat("a", 65), ".abc", "-abc", "_abc", "a b", "a/b", "abc ", "ab\n", "abc\x00", "äbc", "ab%63", "abc:publish",
	} {
		invalid := requireField(t, policy.ValidName("topicName", name), "topicName")
		require.Equal(t, "must be 3 to 64 characters: letters, digits, '.', '_' and '-', the first a letter or digit", invalid.Message)
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
	{"230 s to answer", func(p *policy.Policy) { p.AckTimeout, p.LateAnswerWindow = 230*time.Second, 0 }, ""},
	{"30 days to live", func(p *policy.Policy) { p.MaxTTL, p.DefaultTTL = 720*time.Hour, 720*time.Hour }, ""},
	{"1000 attempts", func(p *policy.Policy) { p.MaxMaxAttempts, p.DefaultMaxAttempts = 1000, 1000 }, ""},
	{"no limit of attempts", func(p *policy.Policy) { p.DefaultMaxAttempts = 0 }, ""},
	{"gaps that shrink", func(p *policy.Policy) { p.Steps = []time.Duration{time.Hour, time.Second} }, ""},
	{"no probation", func(p *policy.Policy) { p.Probation = policy.Probation{Scope: "none", Action: "hold"} }, ""},
	{"no name", func(p *policy.Policy) { p.Name = "" }, "name"},
	{"a reserved name", func(p *policy.Policy) { p.Name = "postrider.mine" }, "name"},
	{"no time to answer", func(p *policy.Policy) { p.AckTimeout = 0 }, "ackTimeout"},
	{"231 s to answer", func(p *policy.Policy) { p.AckTimeout = 231 * time.Second }, "ackTimeout"},
	{"late answers before the ack timeout", func(p *policy.Policy) { p.LateAnswerWindow = time.Second }, "lateAnswerWindow"},
	{"unknown basis", func(p *policy.Policy) { p.Basis = "moon" }, "basis"},
	{"no steps", func(p *policy.Policy) { p.Steps = nil }, "steps"},
	{"too many steps", func(p *policy.Policy) { p.Steps = slices.Repeat([]time.Duration{time.Hour}, 101) }, "steps"},
	{"a step of 0", func(p *policy.Policy) { p.Steps[3] = 0 }, "steps"},
	{"marks that go back", func(p *policy.Policy) { p.Basis, p.Steps[3] = policy.BasisOffset, time.Second }, "steps"},
	{"marks that stand", func(p *policy.Policy) { p.Basis, p.Steps[1] = policy.BasisOffset, p.Steps[0] }, "steps"},
	{"no tail", func(p *policy.Policy) { p.Tail = 0 }, "tail"},
	{"a negative window", func(p *policy.Policy) { p.RetryWindow = -1 }, "retryWindow"},
	{"jitter above the step", func(p *policy.Policy) { p.JitterFraction = 1.5 }, "jitterFraction"},
	{"negative jitter", func(p *policy.Policy) { p.JitterCap = -time.Second }, "jitterCap"},
	{"unknown expiry", func(p *policy.Policy) { p.Expiry = "" }, "expiry"},
	{"half minutes to live", func(p *policy.Policy) { p.DefaultTTL = 90 * time.Second }, "defaultTTL"},
	{"no least time to live", func(p *policy.Policy) { p.MinTTL = 0 }, "minTTL"},
	{"31 days to live", func(p *policy.Policy) { p.MaxTTL = 31 * 24 * time.Hour }, "maxTTL"},
	{"default above the range", func(p *policy.Policy) { p.MaxTTL = time.Hour }, "defaultTTL"},
	{"0 attempts", func(p *policy.Policy) { p.MinMaxAttempts = 0 }, "minMaxAttempts"},
	{"1001 attempts", func(p *policy.Policy) { p.MaxMaxAttempts = 1001 }, "maxMaxAttempts"},
	{"default attempts above the range", func(p *policy.Policy) { p.DefaultMaxAttempts = 31 }, "defaultMaxAttempts"},
	{"unknown dead-letter default", func(p *policy.Policy) { p.DeadLetterDefault = "blob" }, "deadLetterDefault"},
	{"dead letters before they die", func(p *policy.Policy) { p.DeadLetterDelay = -1 }, "deadLetterDelay"},
	{"dead letters tried for 3 days", func(p *policy.Policy) { p.DeadLetterGiveUp = 72 * time.Hour }, "deadLetterGiveUp"},
	{"unknown probation scope", func(p *policy.Policy) { p.Probation.Scope = "topic" }, "probation.scope"},
	{"unknown probation action", func(p *policy.Policy) { p.Probation.Action = "kill" }, "probation.action"},
	{"probation without a trigger", func(p *policy.Policy) { p.Probation.Trigger = 0 }, "probation.trigger"},
	{"first hold above the longest", func(p *policy.Policy) { p.Probation.First = 5 * time.Hour }, "probation.first"},
	{"probation that holds nothing", func(p *policy.Policy) { p.Probation.First = 0 }, "probation"},
	{"a hold of 0", func(p *policy.Policy) { p.Probation.ByOutcome = map[policy.Outcome]time.Duration{"Busy": 0} }, "probation.byOutcome"},
	{"unknown endpoint kind", func(p *policy.Policy) { p.Cells[2].EndpointKind = "pigeon" }, "cells[2]"},
	{"status 600", func(p *policy.Policy) { p.Cells[2].Condition = "600" }, "cells[2]"},
	{"status 199", func(p *policy.Policy) { p.Cells[2].Condition = "199" }, "cells[2]"},
	{"status with a zero in front", func(p *policy.Policy) { p.Cells[2].Condition = "0404" }, "cells[2]"},
	{"status with a sign", func(p *policy.Policy) { p.Cells[2].Condition = "+20" }, "cells[2]"},
	{"unknown condition", func(p *policy.Policy) { p.Cells[2].Condition = "rain" }, "cells[2]"},
	{"unknown action", func(p *policy.Policy) { p.Cells[2].Action = "" }, "cells[2]"},
	{"negative wait", func(p *policy.Policy) { p.Cells[2].MinDelay = -1 }, "cells[2]"},
	{"a wait of 25 h", func(p *policy.Policy) { p.Cells[2].MinDelay = 25 * time.Hour }, "cells[2]"},
	{"the same cell twice", func(p *policy.Policy) { p.Cells[2] = p.Cells[1] }, "cells[2]"},
	{"everything else is a success", func(p *policy.Policy) { p.Cells[2] = cell("other", policy.ActionSuccess) }, "cells[2]"},
	{"a timeout is a success", func(p *policy.Policy) { p.Cells[2] = cell("timeout", policy.ActionSuccess) }, "cells[2]"},
	{"418 is a success", func(p *policy.Policy) { p.Cells[2] = cell("418", policy.ActionSuccess) }, ""},
	{"nothing for everything else", func(p *policy.Policy) { p.Cells = p.Cells[:3] }, "cells"},
	{"no cells", func(p *policy.Policy) { p.Cells = nil }, "cells"},
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

func cell(condition string, action policy.Action) policy.Cell {
	return policy.Cell{EndpointKind: policy.KindWebhook, Condition: condition, Action: action}
}
