package jobs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/policy"
)

// When nobody can say how old a delivery is, its next turn looks again at once, and makes no attempt before its time.
func TestAgeThatCannotBeLookedUpIsLookedUpAgain(t *testing.T) {
	t.Parallel()
	finished := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, p := range policy.Builtins() {
		judged := policy.Attempt{
			Result: policy.Result{Status: 503}, Kind: policy.KindWebhook, Number: 3,
			TimeToLiveSince: finished.Add(-7 * 24 * time.Hour),
			FirstAttemptAt:  finished.Add(-time.Minute), ScheduledAt: finished, FinishedAt: finished,
			Limits: policy.Limits{TTL: time.Minute},
		}
		v := (&attempt{rules: policy.Rules{Policy: &p}}).checkAgain(judged)
		require.Equal(t, policy.Retry, v.Action, p.Name)
		require.Equal(t, finished, v.At, p.Name)
		judged.TimeToLiveSince, judged.Limits.TTL = finished, 24*time.Hour
		require.Equal(t, policy.Decide(&p, judged).At, v.NotBefore, p.Name)
	}
}
