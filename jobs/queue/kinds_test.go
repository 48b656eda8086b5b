package queue_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/testnode"
	"postrider/jobs"
)

// futureJobs are what a node of a newer version may have in the queue: in every state, with arguments that mean nothing
// here.
const futureJobs = `INSERT INTO postrider_internal.river_job (state, args, kind, queue, priority, max_attempts, attempt,
	    scheduled_at, attempted_at, attempted_by, created_at)
	SELECT j.state::postrider_internal.river_job_state, '{"d":"x","s":"y"}', 'future', j.queue, 1, 1000, 0,
	       now() - interval '1 second', CASE WHEN j.by IS NOT NULL THEN now() - interval '1 hour' END, j.by::text[],
	       now() - interval '1 hour' FROM (VALUES ('available', 'deliveries', NULL), ('scheduled', 'deliveries', NULL),
		('retryable', 'deliveries', '{dead}'), ('running', 'routes', '{dead}'), ('running', 'deliveries', '{node-1}'))
		AS j(state, queue, by)`

const futureStates = "SELECT coalesce(string_agg(state::text, ' ' ORDER BY id), '') " +
	"FROM postrider_internal.river_job WHERE kind = 'future'"

func statesOfFutureKinds(t *testing.T, tn *testnode.Node) (states string) {
	t.Helper()
	require.NoError(t, tn.Pool.QueryRow(t.Context(), futureStates).Scan(&states))
	return states
}

// During a rolling upgrade this version meets jobs of a kind that only the next one knows.
func TestJobsOfAnUnknownKindAreOnlyPromoted(t *testing.T) {
	t.Parallel()
	tn := testnode.Pending(t, 4)
	_, j := tn.Fetch(t, "dead")
	require.Len(t, j, 4)
	tn.Exec(t, futureJobs)

	require.Equal(t, 4, tn.Reclaim(t), "the others are replaced")
	n, err := tn.System.JobRows.ReclaimOwn(t.Context(), nil)
	require.NoError(t, err)
	require.Zero(t, n)
	ids := testnode.Value[[]int64](t, tn, "SELECT array_agg(id) FROM postrider_internal.river_job WHERE kind = 'future'")
	n, err = tn.System.JobRows.Reclaim(t.Context(), ids)
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, testnode.ErrorOf(tn.System.Maintenance.Sweep(t.Context())))
	traffic := tn.Traffic(t)
	require.Equal(t, 4, traffic.QueuedInAll)
	require.Equal(t, "available scheduled retryable running running", statesOfFutureKinds(t, tn))

	tn.Promote(t)
	require.Equal(t, "available available available running running", statesOfFutureKinds(t, tn))
	require.Equal(t, 5, tn.Jobs(t, "kind = 'future' AND id = ANY ($1)", ids), "the same rows")
	require.Zero(t, tn.Count(t, brokenFree))
}

// A delivery whose job is of an unknown kind is the newer version's: whatever this one does, both stay as they are.
func TestDeliveryOfAnUnknownKindOfJobIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		state string
		do    func(*testing.T, *testnode.Node)
	}{
		"the sweeper": {"scheduled", func(t *testing.T, tn *testnode.Node) {
			require.Equal(t, jobs.Swept{}, tn.Sweep(t))
		}},
		"the lease": {"running", func(t *testing.T, tn *testnode.Node) {
			require.Zero(t, tn.Reclaim(t))
		}},
		"the drain": {"scheduled", func(t *testing.T, tn *testnode.Node) {
			require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", "all"))
			require.NoError(t, tn.System.Subscriptions.Drain(t.Context()))
			require.Zero(t, tn.Subscriptions(t, "drained_at IS NOT NULL"), "there is something left to do")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn := testnode.Pending(t, 1)
			tn.Exec(t, "UPDATE postrider_internal.river_job SET kind = 'future', attempted_by = '{dead}', state = "+
				"$1::postrider_internal.river_job_state", row.state)
			age(t, tn)
			row.do(t, tn)
			require.Equal(t, row.state, statesOfFutureKinds(t, tn))
			require.Equal(t, 1, tn.Jobs(t, "queue = 'deliveries'"))
			require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider_internal.deliveries d "+
				"JOIN postrider_internal.river_job j ON j.id = d.job_id WHERE d.reruns = 0"))
		})
	}
}

// A late success ends the delivery by deleting the job of its next attempt, when it knows what that job is.
func TestLateSuccessLeavesAJobOfAnUnknownKind(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	r := tn.TimeOut(t, sub, 1)
	tn.Exec(t, "UPDATE postrider_internal.river_job SET kind = 'future'")
	require.False(t, tn.LateSuccess(t, r[0]))
	tn.RequireLate(t, "note", "200; only noted: no retry was waiting in the queue")
	require.Equal(t, "available", statesOfFutureKinds(t, tn))
}
