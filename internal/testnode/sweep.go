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
