package queue_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/jobs"
	"postrider/jobs/delivery"
	"postrider/jobs/queue"
	"postrider/policy"
)

func TestBatchIsHeldAsAWhole(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.BatchingOrders(t, 10, 64)
	tn.Publish(t, "orders", "e", 3)
	batch := tn.CutOne(t, sub)
	hold := testnode.BatchResult(batch, sub, policy.Verdict{Action: delivery.Hold, Reason: catalog.HoldPaused})
	hold.Number, hold.Reruns, hold.Bytes = 0, 3, 0
	tn.Record(t, hold)
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	require.Equal(t, 3,
		tn.Count(t, "SELECT members FROM postrider_internal.batches WHERE hold = 'paused' AND attempts = 0"))
	require.Equal(t, 3, tn.Count(t, "SELECT held_deliveries FROM postrider.event_subscriptions"))
	held, err := tn.System.Holds.CountHeld(t.Context(), sub.ID)
	require.NoError(t, err)
	require.Equal(t, 3, held)

	require.Equal(t, 3, tn.Refill(t, sub.ID, true, 1),
		"a batch is released whole, if there is capacity for one of its events")
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	require.Equal(t, 1, tn.Jobs(t, "kind = 'batch' AND args ->> 'b' = $1::text AND args ->> 'n' = '1' "+
		"AND args ->> 'r' = '3'", fmt.Sprint(batch.BatchID)))
	require.Equal(t, 1, tn.Batches(t, "last_hold = 'paused'"))
}

// A redelivery that is due later joins no batch before its due time.
func TestBatchesContainOnlyDueDeliveries(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.BatchingOrders(t, 10, 64)
	tn.Pause(t, "orders", sub.Name)
	tn.Publish(t, "orders", "e", 3)
	tn.Resume(t, "orders", sub.Name)
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET next_attempt_at = now() + interval '1 hour' WHERE id = "+
		firstDelivery)
	require.Equal(t, 2, tn.Refill(t, sub.ID, true, 10))
	require.Len(t, tn.CutOne(t, sub).Members, 2)
	require.Zero(t, tn.Refill(t, sub.ID, true, 10))
	require.Equal(t, 1, tn.Pending(t, "hold IS NOT NULL"))
}

// A held batch continues during the hold of its event subscription if the time to live of a member has ended.
func TestHeldBatchWithAnExpiredMemberIsReleased(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.BatchingOrders(t, 2, 64)
	tn.Publish(t, "orders", "e", 4)
	for _, batch := range tn.CutAll(t, sub) {
		hold := testnode.BatchResult(batch, sub, policy.Verdict{Action: delivery.Hold, Reason: catalog.HoldPaused})
		hold.Number, hold.Bytes = 0, 0
		tn.Record(t, hold)
	}
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = time_to_live_since - interval '1 hour' "+
		"WHERE id = "+firstDelivery)
	n, err := tn.System.Releaser.ReleaseExpired(t.Context(), sub.ID, 30*time.Minute, true, 100)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, 1, tn.Batches(t, "hold IS NULL"))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

// A batch cutter holds open deliveries during a pause. The release inserts one batch cutter for all of them.
func TestCutterHoldsDeliveriesDuringAPause(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.BatchingOrders(t, 10, 64)
	tn.Publish(t, "orders", "e", 25)
	tn.Pause(t, "orders", "all")
	require.Empty(t, tn.CutAll(t, sub))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	require.Equal(t, 25, tn.Rows(t, "deliveries", "hold = 'paused'"))
	require.Zero(t, tn.Jobs(t, ""))

	tn.Resume(t, "orders", "all")
	require.Equal(t, 25, tn.Refill(t, sub.ID, true, 100))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	require.Len(t, tn.CutAll(t, sub), 3)
}

func TestPromoteHoldsBatchesAboveTheCapacity(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.BatchingOrders(t, 3, 64)
	tn.Publish(t, "orders", "e", 9)
	for _, batch := range tn.CutAll(t, sub) {
		tn.Record(t, testnode.BatchResult(batch, sub, policy.Verdict{Action: policy.Retry, At: time.Now().Add(time.Hour)}))
	}
	tn.Exec(t, "UPDATE postrider_internal.river_job SET scheduled_at = now()")
	due := tn.Promote(t, queue.Capacity{SubscriptionID: sub.ID, Jobs: 4})
	require.Equal(t, 3, due)
	require.Equal(t, 2, tn.Jobs(t, "state = 'available' AND kind = 'batch' AND args ? 'b'"), "capacity is counted in "+
		"events: %s", tn.Text(t, "SELECT jsonb_agg(to_jsonb(j))::text FROM postrider_internal.river_job j"))
	require.Equal(t, 1, tn.Rows(t, "batches", "hold = 'admission' AND state = 'pending'"))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

// The queue of an event subscription that takes batches is measured in events, before and after they are cut.
func TestTrafficCountsTheEventsOfBatches(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.BatchingOrders(t, 4, 64)
	queued := func() int {
		traffic := tn.Traffic(t)
		return traffic.Queued[sub.ID]
	}
	tn.Publish(t, "orders", "e", 10)
	require.Equal(t, 10, queued())
	batches := tn.CutAll(t, sub)
	require.Equal(t, 10, queued())
	tn.Record(t, testnode.BatchResult(batches[0], sub, policy.Verdict{
		Action: policy.Retry,
		At:     time.Now().Add(time.Hour),
	}))
	require.Equal(t, 10-len(batches[0].Members), queued(), "what waits for its retry delays no other batch")
}

func TestDeletingAnEventSubscriptionCancelsItsBatches(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.BatchingOrders(t, 3, 64)
	tn.Publish(t, "orders", "sent", 3)
	running := tn.CutOne(t, sub)
	tn.Publish(t, "orders", "held", 3)
	held := testnode.BatchResult(tn.CutOne(t, sub), sub, policy.Verdict{Action: delivery.Hold, Reason: catalog.HoldPaused})
	held.Number = 0
	tn.Record(t, held)
	tn.Publish(t, "orders", "open", 2)
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", "all"))
	require.Equal(t, 8, tn.Rows(t, "deliveries", "state = 'canceled' AND reason = 'EventSubscriptionDeleted'"))
	require.Equal(t, 2, tn.Rows(t, "batches", "state = 'canceled' AND hold IS NULL AND finished_at IS NOT NULL"))
	require.Equal(t, 8, tn.Count(t, "SELECT sum(count) FROM postrider.delivery_counts WHERE kind = 'canceled'"))
	err := tn.System.Recorder.Record(t.Context(), testnode.BatchResult(running, sub,
		policy.Verdict{Action: policy.Delivered}))
	require.ErrorIs(t, err, postgres.ErrNotFound)
}

func TestSweepRepairsBatches(t *testing.T) {
	t.Parallel()
	const ageBatches = "UPDATE postrider_internal.batches SET created_at = created_at - interval '1 hour', " +
		"last_attempt_at = last_attempt_at - interval '1 hour'"
	for name, row := range map[string]struct {
		breaking string
		want     int
	}{
		"consistent":                  {"SELECT 1", 0},
		"the batch's job row is gone": {"DELETE FROM postrider_internal.river_job WHERE args ? 'b'", 1},
		"River discarded the batch's job": {
			"UPDATE postrider_internal.river_job SET state = 'discarded', finalized_at = now() WHERE args ? 'b'", 1,
		},
		"the batch names no job": {"UPDATE postrider_internal.batches SET job_id = NULL", 1},
		"a member's batch is gone": {"UPDATE postrider_internal.deliveries SET batch_id = 99 WHERE id = " +
			firstDelivery + "; UPDATE postrider_internal.batches SET members = 2", 1},
		"the cutter is gone":    {"DELETE FROM postrider_internal.river_job WHERE NOT args ? 'b'", 1},
		"all job rows are gone": {"DELETE FROM postrider_internal.river_job", 2},
		"River completed the cutter": {
			"UPDATE postrider_internal.river_job SET state = 'completed', finalized_at = now() WHERE NOT args ? 'b'", 1,
		},
		"the cutter is gone, batches are off": {
			"DELETE FROM postrider_internal.river_job WHERE NOT args ? 'b'; UPDATE postrider_internal.event_subscriptions " +
				"SET settings = (settings::jsonb - '{maxEventsPerBatch,preferredBatchSizeInKilobytes}'::text[])::json", 3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn, sub := testnode.BatchingOrders(t, 10, 64)
			tn.Publish(t, "orders", "e", 3)
			tn.CutOne(t, sub)
			tn.Publish(t, "orders", "open", 3)
			for statement := range strings.SplitSeq(row.breaking, ";") {
				tn.Exec(t, statement)
			}
			require.Equal(t, jobs.Swept{}, tn.Sweep(t), "touched a moment ago")
			age(t, tn)
			tn.Exec(t, ageBatches)
			require.Equal(t, jobs.Swept{Repaired: row.want}, tn.Sweep(t))
			require.Equal(t, jobs.Swept{}, tn.Sweep(t))
			if name != "the batch names no job" { // the job that it has lost finds that it belongs to no batch
				require.Zero(t, tn.Count(t, testnode.BrokenTokens))
			}
		})
	}
}
