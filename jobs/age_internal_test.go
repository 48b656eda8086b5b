package jobs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/policy"
)

// If the age of a delivery cannot be read, the next due check is at once, and no attempt comes before its time.
func TestUnknownAgeIsCheckedAgain(t *testing.T) {
	t.Parallel()
	finished := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, p := range policy.Builtins() {
		facts := policy.Attempt{
			Result: policy.Result{Status: 503}, Kind: policy.KindWebhook, Number: 3,
			TimeToLiveSince: finished.Add(-7 * 24 * time.Hour),
			FirstAttemptAt:  finished.Add(-time.Minute), ScheduledAt: finished, FinishedAt: finished,
			Limits: policy.Limits{TTL: time.Minute},
		}
		v := (&attempt{rules: policy.Rules{Policy: &p}}).checkAgain(facts)
		require.Equal(t, policy.Retry, v.Action, p.Name)
		require.Equal(t, finished, v.At, p.Name)
		facts.TimeToLiveSince, facts.Limits.TTL = finished, 24*time.Hour
		require.Equal(t, policy.Decide(&p, facts).At, v.NotBefore, p.Name)
	}
}
