package delivery_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/filter"
	"postrider/internal/node"
	"postrider/internal/testnode"
	"postrider/policy"
)

// missummedRollups compares the sums that pages read with the minutes.
const missummedRollups = `
WITH added AS (
    SELECT *, (SELECT coalesce(sum(n), 0) FROM unnest(latency_buckets) n) AS timed FROM postrider_internal.rollups
), truth AS (
    SELECT 60 AS span, date_bin('1 hour', minute, 'epoch') AS begins, topic_id, subscription_id, kind, detail,
           sum(count) AS n, sum(timed) AS timed FROM added WHERE subscription_id > 0 GROUP BY 2, 3, 4, 5, 6
    UNION ALL SELECT 15, date_bin('15 minutes', minute, 'epoch'), topic_id, 0, kind, detail, sum(count), sum(timed)
    FROM added GROUP BY 2, 3, 5, 6
    UNION ALL SELECT 15, date_bin('15 minutes', minute, 'epoch'), 0, 0, kind, detail, sum(count), sum(timed) FROM added
    GROUP BY 2, 5, 6
    UNION ALL SELECT 1, minute, 0, 0, kind, detail, sum(count), sum(timed) FROM added GROUP BY 2, 5, 6
)
SELECT count(*) FROM truth FULL JOIN postrider_internal.rollup_sums s USING (span, begins, topic_id, subscription_id,
    kind, detail)
 WHERE s.count IS DISTINCT FROM truth.n OR (SELECT coalesce(sum(b), 0)
     FROM unnest(s.latency_buckets) b) IS DISTINCT FROM truth.timed`

func TestRollupsCountWhatHappened(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.Topic(t, "empty")
	all := tn.Subscribe(t, "orders", "all", nil)
	tn.Subscribe(t, "orders", "none",
		func(s *catalog.SubscriptionSpec) { s.Filter = filter.Filter{IncludedEventTypes: []string{"other"}} })
	tn.Publish(t, "orders", "e", 6)
	tn.Publish(t, "empty", "e", 2)
	d, j := tn.Fetch(t, "node-1")
	for i, verdict := range []policy.Verdict{
		{Action: policy.Delivered},
		{Action: policy.Delivered},
		{Action: policy.Retry, At: time.Now().Add(time.Hour)},
		{Action: policy.DeadLetter, Reason: policy.ReasonMaxDeliveryAttemptsExceeded},
		{Action: policy.Drop, Reason: policy.ReasonTimeToLiveExceeded},
	} {
		r := testnode.Result(d[i], j[i], all, verdict)
		r.Duration = []time.Duration{
			time.Millisecond, 5 * time.Millisecond, 70 * time.Second, time.Second, 900 * time.Millisecond,
		}[i]
		if verdict.Action == policy.Drop {
			r.Number = 0 // ended without a request
		}
		tn.Record(t, r)
		require.NoError(t, tn.System.Recorder.Record(t.Context(), r),
			"a result that was recorded already is not counted again")
	}

	for _, when := range []string{"appended", "merged", "merged and appended"} {
		require.Zero(t, tn.Count(t, testnode.MiscountedRollups), when)
		require.Zero(t, tn.Count(t, missummedRollups), when)
		require.Equal(t, 1, tn.Rows(t, "delivery_counts",
			"kind = 'attempt' AND latency_buckets = '{1,1,0,0,0,0,0,0,1,0,0,0,0,1}'"), when)
		if when == "merged" {
			tn.Publish(t, "empty", "again", 2)
			continue
		}
		tn.MergeRollups(t)
		require.Zero(t, tn.Count(t, "SELECT count(*) FROM postrider_internal.rollup_deltas"))
	}
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", "all"))
	require.Zero(t, tn.Count(t, testnode.MiscountedRollups),
		"canceled deliveries are counted, and the deleted event subscription's counts stay")
	require.Equal(t, 2, tn.Count(t, "SELECT sum(count) FROM postrider.delivery_counts WHERE kind = 'canceled'"))
}

func TestRollupsAddUpWhileTheyAreMerged(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	other := tn.Beside(t, node.Options{Node: "node-2"}).System
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var group sync.WaitGroup
	loop := func(do func(i int)) {
		group.Go(func() {
			defer stop() // a failed check ends all
			for i := 0; ctx.Err() == nil; i++ {
				do(i)
			}
		})
	}
	loop(func(i int) { tn.Publish(t, "orders", fmt.Sprint(i), 1+i%30) })
	loop(func(int) { tn.RecordSome(t, sub, "node-1") })
	for _, s := range []*node.System{tn.System, other} {
		loop(func(i int) {
			require.NoError(t, testnode.ErrorOf(s.Maintenance.MergeRollups(t.Context())))
			if i >= 20 && tn.Ended(t, "") > 100 {
				stop()
			}
		})
	}
	group.Wait()
	require.Zero(t, tn.Count(t, testnode.MiscountedRollups))
	tn.MergeRollups(t)
	require.Zero(t, tn.Count(t, testnode.MiscountedRollups))
	require.Zero(t, tn.Count(t, missummedRollups))
	require.Positive(t, tn.Count(t, "SELECT count(*) FROM postrider_internal.rollup_sums"))
}
