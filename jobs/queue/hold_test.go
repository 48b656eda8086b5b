package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/jobs/delivery"
	"postrider/jobs/queue"
	"postrider/policy"
)

const heldQuery = "SELECT count(*) FROM postrider_internal.deliveries WHERE hold = 'paused'"

func TestPublishToAPausedSubscriptionHolds(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.Subscribe(t, "orders", "paused", nil)
	tn.Subscribe(t, "orders", "open", nil)
	other := tn.Beside(t, node.Options{Node: "node-2"}).System
	for i := range 10 {
		sub, err := tn.System.Holds.Pause(t.Context(), "orders", "paused", nil)
		require.NoError(t, err)
		require.Equal(t, catalog.HoldPaused, sub.Hold.Reason)
		require.NotNil(t, sub.Hold.Since)
		_, err = other.Publisher.Publish(t.Context(), testnode.Publication("orders", fmt.Sprintf("held-%d", i), 1))
		require.NoError(t, err)
		sub, err = tn.System.Holds.Resume(t.Context(), "orders", "paused")
		require.NoError(t, err)
		require.Empty(t, sub.Hold.Reason)
		_, err = other.Publisher.Publish(t.Context(), testnode.Publication("orders", fmt.Sprintf("free-%d", i), 1))
		require.NoError(t, err)
	}
	require.Equal(t, 10, tn.Count(t, heldQuery), "after the response to a pause, publishes on another node observe it")
	require.Equal(t, 10, tn.Rows(t, "deliveries", "hold IS NULL AND subscription = 'paused'"))
	require.Equal(t, 20, tn.Rows(t, "deliveries", "hold IS NULL AND subscription = 'open'"))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	_, err := tn.System.Holds.Pause(t.Context(), "orders", "never", nil)
	require.ErrorIs(t, err, postgres.ErrNotFound)
}

func TestRefillReleasesTheOldestFirstAndNothingTwice(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	tn.Pause(t, "orders", "all")
	tn.Publish(t, "orders", "e", 300)
	traffic := tn.Traffic(t)
	require.Equal(t, []queue.Waiting{{SubscriptionID: sub.ID, Hold: catalog.HoldPaused, Held: queue.DefaultCapacity}},
		traffic.Waiting)
	tn.Resume(t, "orders", "all")
	traffic = tn.Traffic(t)
	require.Equal(t, []queue.Waiting{{SubscriptionID: sub.ID, Held: queue.DefaultCapacity}}, traffic.Waiting)

	other := tn.Beside(t, node.Options{Node: "node-2"}).System
	var released [2]int
	testnode.AtOnce(2, func(i int) {
		var err error
		released[i], err = []*node.System{tn.System, other}[i].Releaser.Refill(t.Context(), sub.ID, false, 100)
		require.NoError(t, err)
	})

	require.Equal(t, 300-released[0]-released[1], tn.Count(t, heldQuery))
	require.Zero(t, tn.Count(t, "SELECT count(*) FROM postrider_internal.deliveries h "+
		"JOIN postrider_internal.deliveries r ON h.hold IS NOT NULL AND r.hold IS NULL AND r.id > h.id"))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	traffic = tn.Traffic(t)
	require.Equal(t, map[int64]int{sub.ID: released[0] + released[1]}, traffic.Queued)
}

func TestHeldRetryWaitsForItsDueTime(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	d, j := tn.Started(t, "orders", "e", 1)
	later := time.Now().Add(time.Hour)
	tn.Record(t, testnode.Result(d[0], j[0], sub, policy.Verdict{Action: policy.Retry, At: later}))
	tn.Exec(t, "UPDATE postrider_internal.river_job SET state = 'available'")
	d, j = tn.Fetch(t, "node-1")
	parked := testnode.Result(d[0], j[0], sub, policy.Verdict{Action: delivery.Hold, Reason: catalog.HoldPaused})
	parked.Number, parked.Reruns = 0, 3
	tn.Record(t, parked)
	require.Equal(t, 1, tn.Pending(t, "hold = 'paused' AND attempts = 1 AND next_attempt_at = $1",
		later.Truncate(time.Microsecond)))

	require.Equal(t, 1, tn.Refill(t, sub.ID, false, 10))
	require.Equal(t, 1, tn.Jobs(t, "state = 'scheduled' AND scheduled_at = $1 AND args ->> 'n' = '2' "+
		"AND args ->> 'r' = '3'", later.Truncate(time.Microsecond)), "a crash before the hold is still counted after it")
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

// A node's sample of the queue may be older than a pause.
func TestRefillStopsAtAPause(t *testing.T) {
	t.Parallel()
	for _, batching := range []bool{false, true} {
		tn, sub := testnode.Orders(t)
		tn.Pause(t, "orders", "all")
		tn.Publish(t, "orders", "e", 2)
		require.Zero(t, tn.Refill(t, sub.ID, batching, 10))
		require.Equal(t, 2, tn.Rows(t, "deliveries", "hold = 'paused'"))
		require.Zero(t, tn.Jobs(t, ""))
	}
}

func TestReleaseExpired(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	tn.Pause(t, "orders", "all")
	tn.Publish(t, "orders", "e", 3)
	tn.Exec(t, `UPDATE postrider_internal.deliveries SET time_to_live_since = time_to_live_since - interval '2 hours',
		next_attempt_at = CASE WHEN id = (SELECT max(id) FROM postrider_internal.deliveries) THEN now() + interval '1 hour'
		    ELSE next_attempt_at END
		WHERE id > (SELECT min(id) FROM postrider_internal.deliveries)`)
	n, err := tn.System.Releaser.ReleaseExpired(t.Context(), sub.ID, 3*time.Hour, false, 10)
	require.NoError(t, err)
	require.Zero(t, n)
	n, err = tn.System.Releaser.ReleaseExpired(t.Context(), sub.ID, time.Hour, true, 10)
	require.NoError(t, err)
	require.Equal(t, 1, n, "the other one's next attempt is still to come")
	n, err = tn.System.Releaser.ReleaseExpired(t.Context(), sub.ID, time.Hour, false, 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, 1, tn.Count(t, heldQuery))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

// Publishes, pauses, resumes and waves at once: whatever a race leaves on hold is found by the next wave.
func TestPausingAndResumingUnderLoadLosesNothing(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	other := tn.Beside(t, node.Options{Node: "node-2"}).System
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	var published [4]int
	for worker := range published {
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				_, err := other.Publisher.Publish(context.Background(), testnode.Publication("orders", fmt.Sprintf("%d-%d", worker,
					i), 1))
				require.True(t, err == nil || errors.Is(err, postgres.ErrUnavailable), "%v", err)
				if err == nil {
					published[worker]++
				}
			}
		})
	}
	group.Go(func() {
		for ctx.Err() == nil {
			require.NoError(t, testnode.ErrorOf(other.Releaser.Refill(context.Background(), sub.ID, false, 50)))
		}
	})
	for range 12 {
		tn.Pause(t, "orders", "all")
		tn.Resume(t, "orders", "all")
	}
	cancel()
	group.Wait()
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	for tn.Count(t, "SELECT count(*) FROM postrider.deliveries WHERE hold IS NOT NULL") > 0 { // admission, too
		tn.Refill(t, sub.ID, false, 1000)
	}
	total := 0
	for _, n := range published {
		total += n
	}
	require.Equal(t, total, tn.Jobs(t, ""))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

// A pause that meets an earlier one whose end is still being written down waits for that end, and holds after it.
func TestPauseDuringAResumeIsNotLost(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	stop := true
	_, err := tn.System.Holds.Pause(t.Context(), "orders", "all", &stop)
	require.NoError(t, err)
	tn.Publish(t, "orders", "e", 3)
	tn.Exec(t, "UPDATE postrider_internal.event_subscription_states SET resumed_at = now()")
	end := tn.OpenTransaction(t, "SELECT FROM postrider_internal.event_subscription_states FOR UPDATE")

	paused := make(chan error, 1)
	go func() { paused <- testnode.ErrorOf(tn.System.Holds.Pause(context.Background(), "orders", "all", nil)) }()
	tn.AwaitLock(t, ".pause(")
	end(true)
	require.NoError(t, <-paused)

	require.NoError(t, tn.System.Holds.MoveTimeToLive(t.Context(), sub.ID))
	now, err := tn.System.Subscriptions.Get(t.Context(), "orders", "all")
	require.NoError(t, err)
	require.Equal(t, catalog.HoldPaused, now.Hold.Reason)
	require.False(t, now.Hold.Resuming)
	require.False(t, now.Hold.TimeToLiveStopped)
}
