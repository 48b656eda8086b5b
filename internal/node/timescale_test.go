package node_test

import (
	"testing"
	"time"

	"postrider/internal/catalog"
	"postrider/internal/node"
	"postrider/internal/testnode"
	"postrider/jobs/queue"
	"postrider/policy"

	"github.com/stretchr/testify/require"
)

// Under a time scale every wait is shorter, and what is configured stays as it was said, for another program as well.
func TestTimeScale(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	fast := tn.Beside(t, node.Options{Node: "node-fast", TimeScale: 60}).System
	tn.Topic(t, "orders")
	sub := tn.Subscribe(t, "orders", "all",
		func(s *catalog.SubscriptionSpec) {
			testnode.Outside(s)
			s.RetryPolicy.EventTimeToLiveInMinutes = new(120)
		})
	require.NoError(t, fast.Cache.Reload(t.Context()))

	rules, known := fast.Cache.Snapshot().Rules(sub.ID)
	require.True(t, known)
	require.Equal(t, []time.Duration{2 * time.Minute, time.Second, 30 * time.Second},
		[]time.Duration{
			rules.Limits.TTL, time.Duration(rules.Policy.Steps[2]), time.Duration(rules.Policy.AckTimeout),
		})
	shown, known := fast.Cache.Snapshot().Policy("ga-2021")
	require.True(t, known)
	require.Equal(t, policy.Seconds(time.Minute), shown.Steps[2])
	exact, known := tn.System.Cache.Snapshot().Rules(sub.ID)
	require.True(t, known)
	require.Equal(t, 2*time.Hour, exact.Limits.TTL)
	require.Equal(t, 1, tn.Rows(t, "event_subscriptions", "event_time_to_live_in_minutes = 120"))

	hastened := &testnode.Node{System: fast, Pool: tn.Pool, URL: tn.URL}
	hastened.Bury(t, sub, 1)
	require.Equal(t, "00:00:05 00:04:00", tn.Text(t, "SELECT DISTINCT format('%s %s', export_due_at - last_attempt_at, "+
		"export_abandon_at - export_due_at) FROM postrider.dead_letters"))
	hastened.Publish(t, "orders", "e", 10)
	d, j := tn.Fetch(t, "node-fast")
	for i := range d {
		work, err := fast.Loader.Load(t.Context(), queue.AttemptArgs{Delivery: d[i], Subscription: sub.ID}, j[i])
		require.NoError(t, err)
		r := testnode.Result(d[i], j[i], sub, policy.Verdict{Action: policy.Retry, At: time.Now().Add(time.Minute)})
		r.Probations, r.FirstEvent = work.Probations, work.Members[0].SystemID
		work.Release()
		require.NoError(t, fast.Recorder.Record(t.Context(), r))
	}
	require.Equal(t, "00:00:05", tn.Text(t, "SELECT (until - since)::text FROM postrider_internal.probations"),
		"ten events failed in a row")
}
