package delivery

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
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

// A failure inserts the rows of the probations that it may change, and only locks those of others.
func TestFailureInsertsRowsOfWhatItChanges(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		outcome  policy.Outcome
		status   int
		busy     bool
		inserted [][]byte
	}{
		{policy.OutcomeDelivered, 200, false, nil},
		{policy.OutcomeBusy, 503, false, [][]byte{[]byte("endpoint"), []byte("own")}},
		{policy.OutcomeBusy, 503, true, nil},
		{policy.OutcomeGenericError, 500, false, [][]byte{[]byte("endpoint")}}, // not in the table
		{policy.OutcomeAborted, 0, false, nil},
	} {
		p, _ := policy.Builtin("ga-2026")
		q := &recording{Attempt: Attempt{Probations: []queue.Probation{
			{Key: "endpoint", Rule: p.Probation.Rule(policy.ProbationEndpoint)},
			{Key: "own", Rule: p.Probation.Rule(policy.ProbationEventSubscription)},
		}}}
		q.Outcome, q.Status, q.Throttled = row.outcome, row.status, row.busy
		batch := &pgx.Batch{}
		queueLockedProbations(batch, []*recording{q}, map[string]*probation{}, &time.Time{})
		require.Equal(t, row.inserted, batch.QueuedQueries[0].Arguments[0], row.outcome)
		require.Equal(t, [][]byte{[]byte("endpoint"), []byte("own")}, batch.QueuedQueries[1].Arguments[0], row.outcome)
	}
}
