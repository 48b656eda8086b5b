package testnode

import (
	_ "embed"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/jobs"
	"postrider/jobs/delivery"
	"postrider/jobs/queue"
	"postrider/policy"
)

// MiscountedRollups compares the counts with the rows that were counted.
//
//go:embed miscounted_rollups.sql
var MiscountedRollups string

// Sweep repairs what it finds, as a node does from time to time.
func (tn *Node) Sweep(t testing.TB) jobs.Swept {
	t.Helper()
	found, err := tn.System.Maintenance.Sweep(t.Context())
	require.NoError(t, err)
	return found
}

// Take fetches some jobs as River does, past those that others are fetching.
func (tn *Node) Take(t testing.TB, node string, limit int) (deliveries []int64, jobs []queue.JobToken) {
	t.Helper()
	rows, err := tn.Pool.Query(t.Context(),
		`UPDATE postrider_internal.river_job SET state = 'running', attempt = attempt + 1, attempted_at = now(),
		attempted_by = array_append(attempted_by, $1) WHERE id = ANY (ARRAY (SELECT id FROM postrider_internal.river_job
		WHERE state = 'available' ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED)) RETURNING (args ->> 'd')::bigint, id,
		    created_at`, node, limit)
	require.NoError(t, err)
	var d int64
	var j queue.JobToken
	_, err = pgx.ForEachRow(rows, []any{&d, &j.JobID, &j.CreatedAt}, func() error {
		deliveries, jobs = append(deliveries, d), append(jobs, j)
		return nil
	})
	require.NoError(t, err)
	return deliveries, jobs
}

// RecordSome takes what is available and records it: delivered, retried at once, retried later, by turns.
func (tn *Node) RecordSome(t testing.TB, sub *catalog.Subscription, node string) {
	t.Helper()
	deliveries, jobs := tn.Take(t, node, 200)
	var group sync.WaitGroup
	for i := range deliveries {
		verdict := [...]policy.Verdict{
			{Action: policy.Delivered},
			{Action: policy.Retry, At: time.Now()},
			{Action: policy.Retry, At: time.Now().Add(time.Hour)},
		}[i%3]
		group.Go(func() {
			require.NoError(t, tn.System.Recorder.Record(t.Context(), Result(deliveries[i], jobs[i], sub, verdict)))
		})
	}
	group.Wait()
}

// Reclaim replaces the jobs of nodes that do not live, and returns their number.
func (tn *Node) Reclaim(t testing.TB) int {
	t.Helper()
	n, err := tn.System.JobRows.ReclaimFromLost(t.Context())
	require.NoError(t, err)
	return n
}

// Refill releases up to n deliveries of an event subscription, and returns their number.
func (tn *Node) Refill(t testing.TB, subscription int64, batching bool, n int) int {
	t.Helper()
	released, err := tn.System.Releaser.Refill(t.Context(), subscription, batching, n)
	require.NoError(t, err)
	return released
}

// Pause pauses an event subscription, whose time to live goes on.
func (tn *Node) Pause(t testing.TB, topic, name string) {
	t.Helper()
	_, err := tn.System.Holds.Pause(t.Context(), topic, name, nil)
	require.NoError(t, err)
}

// Resume ends the pause of an event subscription.
func (tn *Node) Resume(t testing.TB, topic, name string) {
	t.Helper()
	_, err := tn.System.Holds.Resume(t.Context(), topic, name)
	require.NoError(t, err)
}

// Record records a result.
func (tn *Node) Record(t testing.TB, r delivery.Attempt) {
	t.Helper()
	require.NoError(t, tn.System.Recorder.Record(t.Context(), r))
}

// Traffic samples the queue.
func (tn *Node) Traffic(t testing.TB) *queue.TrafficSample {
	t.Helper()
	traffic, err := tn.System.Traffic.SampleTraffic(t.Context())
	require.NoError(t, err)
	return traffic
}

// Promote makes due jobs available, and returns how many were due.
func (tn *Node) Promote(t testing.TB, capacities ...queue.Capacity) int {
	t.Helper()
	n, err := tn.System.JobRows.Promote(t.Context(), capacities...)
	require.NoError(t, err)
	return n
}

// MergeRollups merges counts, and returns how many.
func (tn *Node) MergeRollups(t testing.TB) int {
	t.Helper()
	n, err := tn.System.Maintenance.MergeRollups(t.Context())
	require.NoError(t, err)
	return n
}
