package operator_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/testnode"
	"postrider/jobs/queue"
	"postrider/policy"
)

// atOnce runs the two for each delivery at the same moment.
func atOnce(deliveries int, one, other func(i int)) {
	var group sync.WaitGroup
	for i := range deliveries {
		group.Go(func() { one(i) })
		group.Go(func() { other(i) })
	}
	group.Wait()
}

func TestCancelAndRecordAtTheSameTime(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	const n = 60
	d, j := tn.Started(t, "orders", "e", n)
	canceled := make([]error, n)
	atOnce(n, func(i int) {
		tn.Record(t, testnode.Result(d[i], j[i], sub, policy.Verdict{Action: policy.Delivered}))
	}, func(i int) { canceled[i] = tn.System.Operator.Cancel(t.Context(), d[i]) })

	won := 0
	for _, err := range canceled {
		if err == nil {
			won++
			continue
		}
		require.Contains(t, functionError(t, err).Message, "has ended: delivered")
	}
	require.Equal(t, n,
		tn.Count(t, "SELECT count(DISTINCT delivery_id) FROM postrider.deliveries WHERE state <> 'pending'"))
	require.Equal(t, n, tn.Rows(t, "deliveries", ""), "each has one end")
	require.Equal(t, won, tn.Rows(t, "deliveries", "state = 'canceled'"))
	require.Equal(t, n-won, tn.Rows(t, "delivery_attempts", ""), "of a canceled one nothing is recorded")
	require.Equal(t, n,
		tn.Count(t, "SELECT sum(count) FROM postrider.delivery_counts WHERE kind IN ('delivered', 'canceled')"))
	require.Zero(t, tn.Jobs(t, ""))
}

func TestCancelAndFetchAtTheSameTime(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	const n = 60
	tn.Publish(t, "orders", "e", n)
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = int64(tn.Count(t, "SELECT id FROM postrider_internal.deliveries ORDER BY id OFFSET $1 LIMIT 1", i))
	}
	atOnce(n, func(i int) { require.NoError(t, tn.System.Operator.Cancel(t.Context(), ids[i])) }, func(int) {
		_, err := tn.System.JobRows.Fetch(t.Context(), queue.DeliverQueue, []string{queue.DeliverKind}, 2)
		require.NoError(t, err)
	})
	require.Equal(t, n, tn.Rows(t, "deliveries", "state = 'canceled'"))
	require.Zero(t, tn.Jobs(t, ""))
}

func TestRetryNowTwiceAtTheSameTime(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	const n = 30
	d := tn.Fail(t, sub, n)
	retry := func(i int) { require.NoError(t, tn.System.Operator.RetryNow(t.Context(), d[i])) }
	atOnce(n, retry, retry)
	require.Equal(t, n, tn.Jobs(t, "state = 'available'"))
	require.Equal(t, n, tn.Rows(t, "audit", "action = 'delivery_retried'"))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

// Either the retry that an operator requested or the one of the recording, never both.
func TestRetryNowAndRecordAtTheSameTime(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	const n = 40
	d, j := tn.Started(t, "orders", "e", n)
	atOnce(n, func(i int) {
		tn.Record(t, testnode.Result(d[i], j[i], sub, policy.Verdict{Action: policy.Retry, At: time.Now().Add(time.Hour)}))
	}, func(i int) {
		if err := tn.System.Operator.RetryNow(t.Context(), d[i]); err != nil {
			require.Contains(t, functionError(t, err).Message, "is in progress")
		}
	})
	require.Equal(t, n, tn.Jobs(t, ""))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}
