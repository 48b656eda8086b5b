package delivery_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/jobs/delivery"
	"postrider/jobs/queue"
	"postrider/policy"
)

// loseCommits takes back what was published, with the ids that it was given: what a failover to a standby does that had
// not received the last commits.
func loseCommits(t *testing.T, tn *testnode.Node) {
	t.Helper()
	const truncate = "TRUNCATE postrider_internal.river_job, postrider_internal.deliveries, postrider_internal.events, " +
		"postrider_internal.batches, postrider_internal.left_members RESTART IDENTITY"
	// The sampler of the traffic reads these tables in another order: PostgreSQL may end one of the two.
	require.NoError(t, postgres.RetryTransient(func() error {
		_, err := tn.Pool.Exec(t.Context(), truncate)
		return err
	}))
}

// After a failover that lost its last commits, ids of lost rows are used again. The response to a lost
// event must not end the delivery of another one.
func TestResultsOfLostCommitsEndNothing(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	loseCommits(t, tn)
	lostDeliveries, lostJobs := tn.Started(t, "orders", "lost", 1)
	loseCommits(t, tn)
	deliveries, jobs := tn.Started(t, "orders", "kept", 1)
	require.Equal(t, lostDeliveries, deliveries)
	require.Equal(t, lostJobs[0].JobID, jobs[0].JobID)

	for _, verdict := range []policy.Verdict{
		{Action: policy.Delivered},
		{Action: policy.Retry, At: time.Now().Add(time.Hour)},
		{Action: delivery.Hold, Reason: catalog.HoldAdmission},
	} {
		err := tn.System.Recorder.Record(t.Context(), testnode.Result(lostDeliveries[0], lostJobs[0], sub, verdict))
		if verdict.Action == delivery.Hold {
			require.ErrorIs(t, err, queue.ErrJobGone) // its permits of a rate limit must not be returned
		} else {
			require.NoError(t, err)
		}
		require.Equal(t, 1, tn.Rows(t, "deliveries",
			"event_id = 'kept-0' AND state = 'pending' AND attempts = 0 AND hold IS NULL"), verdict.Action)
		require.Zero(t, tn.Count(t, testnode.BrokenTokens), verdict.Action)
	}
	tn.Record(t, testnode.Result(deliveries[0], jobs[0], sub, policy.Verdict{Action: policy.Delivered}))
	require.Equal(t, 1, tn.Rows(t, "deliveries", "event_id = 'kept-0' AND state = 'delivered'"))
}

// The same of batches, and of the jobs that cut them.
func TestBatchesOfLostCommitsEndNothing(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.BatchingOrders(t, 10, 64)
	loseCommits(t, tn)
	tn.Publish(t, "orders", "lost", 3)
	lost := tn.CutOne(t, sub)
	loseCommits(t, tn)
	tn.Publish(t, "orders", "kept", 3)
	cutter := tn.FetchBatches(t, "node-1")[0]
	require.Equal(t, lost.Job.JobID, cutter.JobID)
	_, err := testnode.LoadBatch(t, tn.System, sub, lost.Job, true)
	require.ErrorIs(t, err, postgres.ErrNotFound, "it cuts nothing")
	require.NoError(t, tn.System.Loader.HoldOpen(t.Context(), sub.ID, lost.Job, catalog.HoldAdmission, 1))
	require.NoError(t, tn.System.JobRows.EndJob(t.Context(), lost.Job))
	require.Equal(t, 3, tn.Pending(t, "open"))
	require.Equal(t, 1, tn.Jobs(t, ""))

	kept := testnode.Cut(t, tn.System, sub, cutter)
	require.Equal(t, lost.BatchID, kept.BatchID)
	delivered := policy.Verdict{Action: policy.Delivered}
	require.ErrorIs(t, tn.System.Recorder.Record(t.Context(), testnode.BatchResult(lost, sub, delivered)),
		postgres.ErrNotFound)
	leave := testnode.BatchResult(lost, sub, policy.Verdict{Action: delivery.Leave},
		delivery.Fate{DeliveryID: kept.Members[0].DeliveryID, Verdict: delivered})
	require.ErrorIs(t, tn.System.Recorder.Record(t.Context(), leave), postgres.ErrNotFound)
	require.Equal(t, 3, tn.Rows(t, "deliveries", "state = 'pending'"))
	tn.Record(t, testnode.BatchResult(kept, sub, delivered))
	require.Equal(t, 3, tn.Rows(t, "deliveries", "state = 'delivered'"))
}

// Changes of the configuration that a failover lost are not believed any longer than the next look, and their versions
// belong to no other group.
func TestLostChangesOfTheCatalogAreForgotten(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	before := tn.Count(t, "SELECT version FROM postrider_internal.catalog")
	tn.Topic(t, "lost")
	cached := tn.System.Cache.Snapshot().Version
	tn.Exec(t, "DELETE FROM postrider_internal.topics WHERE name = 'lost'")
	tn.Exec(t, "UPDATE postrider_internal.catalog SET version = $1", before)

	require.NoError(t, tn.System.Cache.Reload(t.Context()))
	_, found := tn.System.Cache.Snapshot().Topic("lost")
	require.False(t, found)
	_, found = tn.System.Cache.Snapshot().Topic("orders")
	require.True(t, found)
	tn.Topic(t, "found")
	require.Greater(t, tn.System.Cache.Snapshot().Version, cached, "the lost version is given to no other change")
}

// A response that comes after its ack timeout ends no delivery but that of the event it is about.
func TestLateResponsesOfLostCommitsEndNothing(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	loseCommits(t, tn)
	lost := tn.TimeOut(t, sub, 1)[0]
	loseCommits(t, tn)
	tn.Exec(t, "TRUNCATE postrider_internal.delivery_attempts")
	kept := tn.TimeOut(t, sub, 1)[0]
	require.Equal(t, lost.DeliveryID, kept.DeliveryID)

	require.False(t, tn.LateSuccess(t, lost))
	require.Equal(t, 1, tn.Rows(t, "deliveries", "state = 'pending'"))
}
