package testnode

import (
	"cmp"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/jobs/delivery"
	"postrider/jobs/queue"
	"postrider/policy"
)

// Batching has an event subscription take batches.
func Batching(maxEvents, kilobytes int) func(*catalog.SubscriptionSpec) {
	return func(s *catalog.SubscriptionSpec) {
		s.MaxEventsPerBatch, s.PreferredBatchSizeInKilobytes = &maxEvents, &kilobytes
	}
}

// BatchingOrders is a bundle whose event subscription "all" takes batches.
func BatchingOrders(t testing.TB, maxEvents, kilobytes int) (*Node, *catalog.Subscription) {
	t.Helper()
	tn := Unchecked(t)
	tn.Topic(t, "orders")
	return tn, tn.Subscribe(t, "orders", "all", Batching(maxEvents, kilobytes))
}

// BatchJob is a fetched job of a batch, or a batch cutter.
type BatchJob struct {
	queue.JobToken
	Cutter bool
}

// FetchBatches marks jobs of batches as River's fetch does, and returns them, the oldest first.
func (tn *Node) FetchBatches(t testing.TB, node string) []BatchJob {
	t.Helper()
	rows, err := tn.Pool.Query(t.Context(),
		`UPDATE postrider_internal.river_job SET state = 'running', attempt = attempt + 1, attempted_at = now(),
		attempted_by = array_append(attempted_by, $1) WHERE state = 'available' AND kind = 'batch' AND scheduled_at <= now()
		RETURNING id AS job_id, created_at, args -> 'b' IS NULL AS cutter`, node)
	require.NoError(t, err)
	jobs, err := pgx.CollectRows(rows, pgx.RowToStructByName[BatchJob])
	require.NoError(t, err)
	slices.SortFunc(jobs, func(a, b BatchJob) int { return int(a.JobID - b.JobID) })
	return jobs
}

// Cut returns the batch of a job. A batch cutter cuts it first; nil if nothing was open.
func Cut(t testing.TB, s *node.System, sub *catalog.Subscription, job BatchJob) *queue.Work {
	t.Helper()
	batch, err := LoadBatch(t, s, sub, job.JobToken, job.Cutter)
	if err != nil {
		require.ErrorIs(t, err, postgres.ErrNotFound)
		return nil
	}
	t.Cleanup(batch.Release)
	return batch
}

// LoadBatch reads the batch of a job, cut before if it is a batch cutter's.
func LoadBatch(
	t testing.TB, s *node.System, sub *catalog.Subscription, job queue.JobToken, cuts bool,
) (*queue.Work, error) {
	t.Helper()
	if cuts {
		if cut, err := s.Loader.Cut(t.Context(), sub, job, 0); err != nil || !cut {
			return nil, cmp.Or(err, job.Gone())
		}
	}
	return s.Loader.Load(t.Context(), queue.AttemptArgs{Subscription: sub.ID}, job)
}

// CutAll cuts until nothing is open.
func (tn *Node) CutAll(t testing.TB, sub *catalog.Subscription) (batches []*queue.Work) {
	t.Helper()
	for jobs := tn.FetchBatches(t, "node-1"); len(jobs) > 0; jobs = tn.FetchBatches(t, "node-1") {
		for _, job := range jobs {
			if batch := Cut(t, tn.System, sub, job); batch != nil {
				batches = append(batches, batch)
			}
		}
	}
	return batches
}

// CutOne cuts the one batch that there is.
func (tn *Node) CutOne(t testing.TB, sub *catalog.Subscription) *queue.Work {
	t.Helper()
	batches := tn.CutAll(t, sub)
	require.Len(t, batches, 1)
	return batches[0]
}

// BatchResult is a failed attempt of a batch.
func BatchResult(
	batch *queue.Work, sub *catalog.Subscription, verdict policy.Verdict, fates ...delivery.Fate,
) delivery.Attempt {
	r := Result(0, batch.Job, sub, verdict)
	r.BatchID, r.Events, r.Number, r.Bytes, r.Fates = batch.BatchID, len(batch.Members), batch.Attempts+1, 100, fates
	return r
}

// WaitingBatch is a batch of n whose first attempt failed and whose retry waits, or is held.
func (tn *Node) WaitingBatch(t testing.TB, sub *catalog.Subscription, n int, verdict policy.Verdict) *queue.Work {
	t.Helper()
	tn.Publish(t, "orders", "e", n)
	batch := tn.CutOne(t, sub)
	require.NoError(t, tn.System.Recorder.Record(t.Context(), BatchResult(batch, sub, verdict)))
	return batch
}
