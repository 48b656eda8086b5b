package delivery_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/event"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/jobs/queue"
	"postrider/policy"
)

func eventIDs(batch *queue.Work) []string {
	ids := make([]string, len(batch.Members))
	for i, m := range batch.Members {
		ids[i] = m.Event.ID
	}
	return ids
}

// sized publishes one event of each size given.
func sized(t *testing.T, tn *testnode.Node, kilobytes ...int) {
	t.Helper()
	events := make([]event.Event, len(kilobytes))
	for i, size := range kilobytes {
		body := fmt.Sprintf(`{"id":"%d","data":%q}`, i, strings.Repeat("x", size*1024))
		events[i] = event.Event{Schema: event.EventGrid, ID: fmt.Sprint(i), Type: "test", Body: []byte(body)}
	}
	tn.Send(t, testnode.Of("orders", events...))
}

func TestBatchesAreCut(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		maxEvents, kilobytes int
		events               []int
		want                 []int // sizes, sorted
	}{
		"never more than maxEventsPerBatch":                       {3, 1024, []int{0, 0, 0, 0, 0, 0, 0}, []int{1, 3, 3}},
		"exactly one batch":                                       {3, 1024, []int{0, 0, 0}, []int{3}},
		"one event of 10 KB goes alone though 4 KB are preferred": {100, 4, []int{10}, []int{1}},
		"and does not take others along":                          {100, 4, []int{10, 10, 10}, []int{1, 1, 1}},
		"small ones go together up to the preferred size":         {100, 4, []int{1, 1, 1, 1, 1, 1}, []int{3, 3}},
		"two of half the size do not fit, with what is added":     {100, 4, []int{2, 2}, []int{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn, sub := testnode.BatchingOrders(t, row.maxEvents, row.kilobytes)
			sized(t, tn, row.events...)
			var got []int
			for _, batch := range tn.CutAll(t, sub) {
				got = append(got, len(batch.Members))
			}
			slices.Sort(got)
			require.Equal(t, row.want, got)
			require.Zero(t, tn.Count(t, testnode.BrokenTokens))
			require.Equal(t, len(row.want), tn.Jobs(t, "args ->> 'b' IS NOT NULL"))
			testnode.Within(t, "a batch cutter without deliveries deletes its job", func() bool {
				tn.CutAll(t, sub)
				return tn.Jobs(t, "") == len(row.want)
			})
		})
	}
}

func TestBatchHasTheOrderOfPublishing(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.BatchingOrders(t, 100, 1024)
	for i := range 5 {
		tn.Publish(t, "orders", fmt.Sprint(i), 3)
	}
	batch := tn.CutOne(t, sub)
	want := []string{
		"0-0", "0-1", "0-2", "1-0", "1-1", "1-2", "2-0", "2-1", "2-2", "3-0", "3-1", "3-2", "4-0", "4-1", "4-2",
	}
	require.Equal(t, want, eventIDs(batch))
	require.Equal(t, 15, tn.Count(t,
		`SELECT count(*) FROM postrider.batch_members m JOIN unnest($1::text[]) WITH ORDINALITY AS w(event_id, position)
		ON w.event_id = m.event_id AND w.position = m.position WHERE left_at IS NULL`, want))
}

// Events of one publish in SQL have nearly the same time. Batches, with held deliveries too, and lists have the order
// of acceptance.
func TestBatchHasTheOrderOfSQLPublishes(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.BatchingOrders(t, 1000, 1024)
	var want []string
	publish := func(prefix string) {
		tn.Exec(t, `SELECT postrider.publish_batch('orders', jsonb_agg(
			jsonb_build_object('id', $1 || n, 'eventType', 't', 'subject', 's') ORDER BY n)) FROM generate_series(1, 200) n`,
			prefix)
		tn.RouteAll(t, tn.System)
		for i := range 200 {
			want = append(want, fmt.Sprint(prefix, i+1))
		}
	}
	tn.Pause(t, "orders", "all")
	publish("held-")
	tn.Resume(t, "orders", "all")
	publish("open-")
	require.Equal(t, want, eventIDs(tn.CutOne(t, sub)))
	for _, list := range []string{
		"SELECT array_agg(event_id ORDER BY system_id) FROM postrider.events",
		"SELECT array_agg(event_id ORDER BY delivery_id) FROM postrider.deliveries",
	} {
		require.Equal(t, want, testnode.Value[[]string](t, tn, list))
	}
}

func TestTwoNodesCutDisjointBatchesAndLoseNothing(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.BatchingOrders(t, 7, 1024)
	other := tn.Beside(t, node.Options{Node: "node-2"}).System
	require.NoError(t, other.Cache.Reload(t.Context()))
	stop := make(chan struct{})
	var publishers, cutters sync.WaitGroup
	for worker := range 2 {
		publishers.Go(func() {
			for i := range 10 {
				tn.Publish(t, "orders", fmt.Sprintf("%d-%d", worker, i), 10)
			}
		})
	}
	for node, s := range []*node.System{tn.System, tn.System, other, other} {
		cutters.Go(func() {
			for {
				jobs := tn.FetchBatches(t, fmt.Sprint(node))
				for _, job := range jobs {
					testnode.Cut(t, s, sub, job)
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	publishers.Wait()
	testnode.Within(t, "all are cut", func() bool { return tn.Pending(t, "batch_id IS NULL") == 0 })
	close(stop)
	cutters.Wait()
	require.Equal(t, 200, tn.Count(t, "SELECT count(DISTINCT delivery_id) FROM postrider_internal.batch_members"))
	require.Equal(t, 200, tn.Count(t, "SELECT count(*) FROM postrider_internal.batch_members"))
	require.Equal(t, 200, tn.Count(t, "SELECT sum(members) FROM postrider_internal.batches"))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

// Deliveries that one node leaves before the cursor of another are cut later.
func TestCutterReturnsToSkippedDeliveries(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.BatchingOrders(t, 2, 1024)
	tn.System.Loader.SearchSlowerThan(time.Hour)
	tn.Publish(t, "orders", "early", 1)
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET job_id = -1") // as if it were not committed yet
	tn.Publish(t, "orders", "late", 6)
	require.Len(t, tn.CutAll(t, sub), 3)
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET job_id = NULL WHERE job_id = -1")
	tn.Publish(t, "orders", "last", 1)
	require.Equal(t, []string{"early-0", "last-0"}, eventIDs(tn.CutOne(t, sub)))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

// Held deliveries are cut before later ones, and keep only the name of their hold. A delivery that was attempted before
// is sent alone.
func TestCutterTakesHeldDeliveries(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.BatchingOrders(t, 3, 1024)
	tn.Publish(t, "orders", "early", 3)
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET hold = 'paused'")
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET attempts = 1 WHERE id = (SELECT min(id) "+
		"FROM postrider_internal.deliveries)")
	tn.Exec(t, "DELETE FROM postrider_internal.river_job")
	n, err := tn.System.Releaser.Refill(t.Context(), sub.ID, true, 100)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Equal(t, 1, tn.Jobs(t, "kind = 'deliver' AND args ->> 'n' = '2'"))
	tn.Publish(t, "orders", "late", 1)
	batch := tn.CutOne(t, sub)
	require.Equal(t, []string{"early-1", "early-2", "late-0"}, eventIDs(batch))
	require.Equal(t, "paused", batch.LastHold)
	require.Zero(t, tn.Pending(t, "hold IS NOT NULL"))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

// A batch cutter that waits takes along those that wait with it; no other deliveries lose their only batch cutter.
func TestOneCutterEndsTheWaitingOnes(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.BatchingOrders(t, 100, 1024)
	for i := range 20 {
		tn.Publish(t, "orders", fmt.Sprint(i), 1)
	}
	jobs := tn.FetchBatches(t, "node-1")
	require.Len(t, jobs, 20)
	end := tn.OpenTransaction(t, "SELECT FROM postrider_internal.river_job WHERE id = $1 FOR UPDATE", jobs[0].JobID)
	var cutters sync.WaitGroup
	var sizes [20]int
	start := func(i int) {
		cutters.Go(func() {
			if batch := testnode.Cut(t, tn.System, sub, jobs[i]); batch != nil {
				sizes[i] = len(batch.Members)
			}
		})
	}
	start(0)
	tn.AwaitLock(t, "")
	for i := range jobs[1:] {
		start(i + 1)
	}
	testnode.Within(t, "the others wait", func() bool { return tn.System.Loader.WaitingCutters(sub.ID) == 19 })
	end(false)
	cutters.Wait()
	require.Equal(t, 20, sizes[0], "the first one cuts all")
	require.Zero(t, tn.System.Loader.WaitingCutters(sub.ID))
	for _, size := range sizes[1:] {
		require.Zero(t, size)
	}
	require.Equal(t, 1, tn.Jobs(t, ""), "the batch's")
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

// A delivery that gets its own job while a cut has read it as open joins no batch.
func TestCutLeavesOutDeliveriesWithJobs(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.BatchingOrders(t, 10, 64)
	tn.Publish(t, "orders", "e", 3)
	job := tn.FetchBatches(t, "node-1")[0]
	tx := tn.Begin(t)
	_, err := tx.Exec(t.Context(), `WITH job AS (
		    INSERT INTO postrider_internal.river_job (state, args, kind, queue, priority, max_attempts, scheduled_at)
		    SELECT 'scheduled', jsonb_build_object('d', min(id), 's', min(subscription_id), 'n', 1), 'deliver', 'deliveries',
		           1, 1000, now() FROM postrider_internal.deliveries RETURNING id, args)
		UPDATE postrider_internal.deliveries d SET job_id = job.id FROM job WHERE d.id = (job.args ->> 'd')::bigint`)
	require.NoError(t, err)
	var batch *queue.Work
	var cutter sync.WaitGroup
	cutter.Go(func() { batch, err = testnode.LoadBatch(t, tn.System, sub, job.JobToken, job.Cutter) })
	tn.AwaitLock(t, "")
	commitError := tx.Commit(t.Context())
	cutter.Wait()
	require.NoError(t, commitError)
	require.NoError(t, err)
	t.Cleanup(batch.Release)
	require.Len(t, batch.Members, 2)
	require.Equal(t, 1, tn.Pending(t, "job_id IS NOT NULL"))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

// A slow search for earlier deliveries is left to a later batch cutter, which must exist.
func TestSlowSearchIsLeftToALaterCutter(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.BatchingOrders(t, 2, 1024)
	tn.System.Loader.SearchSlowerThan(0)
	tn.Publish(t, "orders", "early", 1)
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET job_id = -1")
	tn.Publish(t, "orders", "middle", 1)
	tn.CutOne(t, sub) // the first cut has nothing to look back to
	tn.Publish(t, "orders", "next", 1)
	tn.CutOne(t, sub) // looks back
	later := tn.Jobs(t, "args -> 'b' IS NULL "+
		"AND scheduled_at > now() - interval '1 second'")
	require.Equal(t, 1, later)
	tn.Publish(t, "orders", "late", 1)
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET job_id = NULL WHERE job_id = -1")
	tn.CutAll(t, sub)
	require.Zero(t, tn.Count(t, testnode.BrokenTokens), "skipped deliveries have a batch cutter")
	testnode.Within(t, "every delivery is in a batch", func() bool {
		tn.CutAll(t, sub)
		return tn.Pending(t, "batch_id IS NULL") == 0
	})
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	testnode.Within(t, "there is one batch cutter", func() bool {
		tn.CutAll(t, sub)
		return tn.Jobs(t, "args -> 'b' IS NULL") == 0
	})
}

func TestCutterWithoutItsJobCutsNothing(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.BatchingOrders(t, 10, 64)
	tn.Publish(t, "orders", "e", 3)
	jobs := tn.FetchBatches(t, "lost")
	require.Equal(t, 1, tn.Reclaim(t), "a batch cutter is replaced")
	require.Nil(t, testnode.Cut(t, tn.System, sub, jobs[0]), "the node that was thought dead comes back")
	require.Zero(t, tn.Batches(t, ""))
	require.Len(t, tn.CutOne(t, sub).Members, 3)
}

// A node that dies after the cut: its batch is sent again as it was cut, under another token.
func TestBatchSurvivesItsNode(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.BatchingOrders(t, 10, 64)
	tn.Publish(t, "orders", "e", 5)
	before := tn.CutOne(t, sub)
	tn.Exec(t, "UPDATE postrider_internal.river_job SET attempted_by = '{lost}'")
	tn.Publish(t, "orders", "more", 2)
	require.Equal(t, 1, tn.Reclaim(t))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	require.Equal(t, 1, tn.Rows(t, "batches", "reruns = 1"))

	job := tn.Count(t, "SELECT job_id FROM postrider_internal.batches")
	after, err := testnode.LoadBatch(t, tn.System, sub, queue.JobToken{JobID: int64(job)}, false)
	require.NoError(t, err)
	defer after.Release()
	require.Equal(t, before.Members, after.Members)
	require.Equal(t, 1, tn.Jobs(t, "id = $1 AND args ->> 'r' = '1'", job))

	_, err = testnode.LoadBatch(t, tn.System, sub, before.Job, false)
	require.ErrorIs(t, err, postgres.ErrNotFound, "the old token opens nothing")
	err = tn.System.Recorder.Record(t.Context(), testnode.BatchResult(before, sub,
		policy.Verdict{Action: policy.Delivered}))
	require.ErrorIs(t, err, postgres.ErrNotFound)
	require.Zero(t, tn.Rows(t, "delivery_attempts", ""), "a node that was thought dead records nothing")
	require.Equal(t, 7, tn.Rows(t, "deliveries", "state = 'pending'"))
}

func TestBatchIsRecordedAllOrNone(t *testing.T) {
	t.Parallel()
	soon := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	for name, row := range map[string]struct {
		verdict         policy.Verdict
		delivery, batch string
	}{
		"delivered": {policy.Verdict{Action: policy.Delivered}, "state = 'delivered' AND reason IS NULL", "state = " +
			"'delivered' AND finished_at IS NOT NULL"},
		"retry": {policy.Verdict{Action: policy.Retry, At: soon}, "state = 'pending' AND next_attempt_at > now() " +
			"AND hold IS NULL", "state = 'pending' AND next_attempt_at > now()"},
		"dropped": {policy.Verdict{Action: policy.Drop, Reason: policy.ReasonHTTPBadRequest}, "state = 'dropped' " +
			"AND reason = 'UndeliverableDueToHttpBadRequest'", "state = 'dropped'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn, sub := testnode.BatchingOrders(t, 10, 64)
			tn.Publish(t, "orders", "e", 5)
			batch := tn.CutOne(t, sub)
			tn.Record(t, testnode.BatchResult(batch, sub, row.verdict))
			require.Equal(t, 5, tn.Rows(t, "deliveries",
				"attempts = 1 AND last_status = 503 AND last_outcome = 'Busy' AND batch_id = $1 AND "+row.delivery, batch.BatchID))
			require.Equal(t, 1, tn.Rows(t, "batches", "attempts = 1 AND members = 5 AND bytes = 100 AND last_status = 503 "+
				"AND last_attempt_at IS NOT NULL AND "+row.batch))
			require.Equal(t, 1, tn.Rows(t, "delivery_attempts", "batch_id = $1 AND delivery_id IS NULL AND number = 1",
				batch.BatchID))
			require.Zero(t, tn.Count(t, testnode.BrokenTokens))
			require.Zero(t, tn.Jobs(t, "id = $1", batch.Job.JobID), "a job row never serves two attempts")
			require.Equal(t, 1, tn.Count(t, "SELECT sum(count) FROM postrider.delivery_counts WHERE kind = 'attempt'"),
				"one request")
		})
	}
}

func TestBigBatchIsRecordedInOneStatement(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.BatchingOrders(t, 5000, 1024)
	for i := range 5 {
		tn.Publish(t, "orders", fmt.Sprint(i), 1000)
	}
	batch := tn.CutOne(t, sub)
	require.Len(t, batch.Members, 5000)
	tn.Record(t, testnode.BatchResult(batch, sub, policy.Verdict{Action: policy.Delivered}))
	require.Equal(t, 5000, tn.Ended(t, "state = 'delivered'"))
}
