package policy_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"postrider/policy"

	"github.com/stretchr/testify/require"
)

// The rows of the built-in policies have whole seconds.
func TestBuiltinsAreWholeSeconds(t *testing.T) {
	t.Parallel()
	for _, p := range policy.Builtins() {
		spans := slices.Concat(p.Steps, slices.Collect(maps.Values(p.Probation.ByOutcome)), []time.Duration{
			p.AckTimeout, p.LateResponseWindow, p.Tail, p.RetryWindow, p.JitterCap, p.RetryAfterCap, p.DefaultTTL,
			p.MinTTL, p.MaxTTL,
			p.DeadLetterDelay, p.DeadLetterExportWindow, p.Probation.First, p.Probation.Max,
		})
		for _, c := range p.Cells {
			spans = append(spans, c.MinDelay)
		}
		for _, d := range spans {
			require.Zero(t, d%time.Second, "%s: %s would lose its fraction in the seed", p.Name, d)
		}
	}
}
