package delivery

import (
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/jobs/queue"
	"postrider/policy"
)

// failingKeys lists the probations that the recorder remembers as failing.
func failingKeys(r *Recorder) (keys []string) {
	r.failing.Range(func(key, _ any) bool {
		keys = append(keys, key.(string))
		return true
	})
	return keys
}

func TestRememberFailingForgetsProbationsWithoutRow(t *testing.T) {
	t.Parallel()
	r := &Recorder{}
	var results []*recording
	for _, key := range []string{"released elsewhere", "still failing"} {
		r.failing.Store(key, true)
		results = append(results, &recording{Attempt: Attempt{Probations: []queue.Probation{{Key: key}}}})
	}
	failing := &probation{key: "still failing", state: policy.ProbationState{FailuresInARow: 1}}
	r.rememberFailing(results, map[string]*probation{failing.key: failing})
	require.Equal(t, []string{"still failing"}, failingKeys(r))
}
