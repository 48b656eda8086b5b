package queue_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/testnode"
	"postrider/jobs/queue"
	"postrider/policy"
)

// recording records results at the same time, and counts those that are recorded.
func recording(
	t *testing.T, tn *testnode.Node, sub *catalog.Subscription, verdict policy.Verdict, deliveries []int64,
	jobs []queue.JobToken,
) *atomic.Int64 {
	t.Helper()
	var recorded atomic.Int64
	for i := range deliveries {
		go func() {
			if tn.System.Recorder.Record(t.Context(), testnode.Result(deliveries[i], jobs[i], sub, verdict)) == nil {
				recorded.Add(1)
			}
		}()
	}
	return &recorded
}

// TestOpenTransactionDelaysOnlyItsDelivery: a transaction that locks a delivery's rows delays that delivery alone, and
// the node goes on. What becomes of it then is what became of it first.
func TestOpenTransactionDelaysOnlyItsDelivery(t *testing.T) {
	t.Parallel()
	const many = 41
	for name, other := range map[string]struct {
		does   string
		held   int64
		commit bool
		state  string
	}{
		"cancels": {"SELECT postrider.cancel($1)", 1, true, "canceled"},
		"locks a job": {
			"SELECT FROM postrider_internal.river_job WHERE (args ->> 'd')::bigint = $1 FOR UPDATE", 1, true, "delivered",
		},
		"cancels, but no": {"SELECT postrider.cancel($1)", 1, false, "delivered"},
		"locks a row":     {"SELECT FROM postrider_internal.deliveries WHERE id = $1 FOR UPDATE", 1, true, "delivered"},
		"gives three up": {
			"SELECT postrider.dead_letter_now(d) FROM generate_series($1::bigint, $1::bigint + 2) d", 3, true, "dead_lettered",
		},
		"gives none of them": {
			"SELECT postrider.dead_letter_now(d) FROM generate_series($1::bigint, $1::bigint + 2) d", 3, false, "delivered",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn, sub := testnode.Orders(t)
			d, j := tn.Started(t, "orders", "e", many)
			first := slices.Min(d)
			end := tn.OpenTransaction(t, other.does, first)
			recorded := recording(t, tn, sub, policy.Verdict{Action: policy.Delivered}, d, j)
			testnode.Within(t, "the others are recorded", func() bool { return recorded.Load() == many-other.held })
			// Later flushes do not wait again for rows that are known to be locked.
			tn.Publish(t, "orders", "f", 10)
			d, j = tn.Fetch(t, "node-1")
			for i := range d {
				tn.Record(t, testnode.Result(d[i], j[i], sub, policy.Verdict{Action: policy.Delivered}))
			}
			require.NoError(t, tn.System.Recorder.WaitRecording(t.Context()), "new requests may start")
			require.Equal(t, many-other.held, recorded.Load())
			end(other.commit)
			testnode.Within(t, "all are recorded", func() bool { return recorded.Load() == many })
			require.EqualValues(t, other.held, tn.Rows(t, "deliveries", "state = $1 AND delivery_id BETWEEN $2 AND $2 + $3 - 1",
				other.state, first, other.held))
			require.Equal(t, many+10, tn.Rows(t, "deliveries", "state IN ('delivered', $1)", other.state), "each ended once")
			require.Zero(t, tn.Jobs(t, ""))
			require.Zero(t, tn.Count(t, testnode.BrokenTokens))
		})
	}
}

// A transaction that locks a member of a batch delays that batch alone.
func TestLockedMemberDelaysOnlyItsBatch(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.BatchingOrders(t, 2, 64)
	tn.Publish(t, "orders", "e", 4)
	batches := tn.CutAll(t, sub)
	require.Len(t, batches, 2)
	end := tn.OpenTransaction(t, "SELECT FROM postrider_internal.deliveries WHERE id = $1 FOR UPDATE",
		batches[0].Members[1].DeliveryID)
	delivered, recorded := policy.Verdict{Action: policy.Delivered}, make(chan error, 1)
	go func() {
		recorded <- tn.System.Recorder.Record(t.Context(), testnode.BatchResult(batches[0], sub, delivered))
	}()
	tn.Become(t, 1, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "+
		"AND wait_event_type = 'Lock'")
	tn.Record(t, testnode.BatchResult(batches[1], sub, delivered))
	require.NoError(t, tn.System.Recorder.WaitRecording(t.Context()), "new requests may start")
	require.Empty(t, recorded)
	end(true)
	require.NoError(t, <-recorded)
	require.Equal(t, 4, tn.Rows(t, "deliveries", "state = 'delivered'"))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

// A transaction that releases a probation locks its row, which blocks the failures of that endpoint only. Results of
// other endpoints are recorded, and no publish waits.
func TestOpenReleaseDelaysNoOtherEndpoint(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	resting := tn.Subscribe(t, "orders", "resting", nil)
	other := tn.Subscribe(t, "orders", "other",
		func(s *catalog.SubscriptionSpec) { s.EndpointURL = "https://other.example.com/hook" })
	d, j := tn.Started(t, "orders", "e", 10)
	tn.Rest(t, "resting")
	end := tn.OpenTransaction(t, "SELECT postrider.release('orders', 'resting')")
	tn.Publish(t, "orders", "f", 20) // no publish waits for it
	require.Equal(t, 20, tn.Rows(t, "deliveries", "subscription = 'resting' AND hold = 'probation'"))

	var recorded [2]atomic.Int64
	for i := range d {
		sub, which := other, 1
		if tn.Count(t, "SELECT subscription_id FROM postrider_internal.deliveries WHERE id = $1", d[i]) == int(resting.ID) {
			sub, which = resting, 0
		}
		work, err := tn.System.Loader.Load(t.Context(), queue.AttemptArgs{Delivery: d[i], Subscription: sub.ID}, j[i])
		require.NoError(t, err)
		r := testnode.Result(d[i], j[i], sub, policy.Verdict{Action: policy.Retry, At: time.Now().Add(time.Hour)})
		r.Probations = work.Probations
		work.Release()
		go func() {
			if tn.System.Recorder.Record(t.Context(), r) == nil {
				recorded[which].Add(1)
			}
		}()
	}
	testnode.Within(t, `recorded[1].Load() == 10`, func() bool { return recorded[1].Load() == 10 })
	require.NoError(t, tn.System.Recorder.WaitRecording(t.Context()))
	require.Zero(t, recorded[0].Load())
	end(true)
	testnode.Within(t, `recorded[0].Load() == 10`, func() bool { return recorded[0].Load() == 10 })
	require.Equal(t, 20, tn.Recorded(t, ""), "each once")
	require.Equal(t, 20, tn.Refill(t, resting.ID, false, 100), "what was held for what was over is let go")
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

// An open transaction that resumes an event subscription delays no publish. Deliveries that are published meanwhile are
// held, and released by the first refill after the commit.
func TestOpenResumeDelaysNoPublish(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{true, false} {
		tn, sub := testnode.Orders(t)
		tn.Subscribe(t, "orders", "other", nil)
		tn.Exec(t, "SELECT postrider.pause('orders', $1)", sub.Name)
		end := tn.OpenTransaction(t, "SELECT postrider.resume('orders', $1)", sub.Name)
		for range 20 {
			tn.Publish(t, "orders", "e", 10) // while the transaction is open
		}
		require.Equal(t, 200, tn.Rows(t, "deliveries", "hold = 'paused'"))
		require.Equal(t, 200, tn.Jobs(t, ""), "the other's")
		end(commit)
		require.Equal(t, map[bool]int{true: 200}[commit], tn.Refill(t, sub.ID, false, 1000))
		require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	}
}
