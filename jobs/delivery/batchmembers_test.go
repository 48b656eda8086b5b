package delivery_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/jobs/delivery"
	"postrider/policy"
)

// Members go their own way where the batch's next attempt comes too late for them; what they were stays written down.
func TestMembersLeaveARetriedBatch(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.BatchingOrders(t, 10, 64)
	tn.Publish(t, "orders", "e", 4)
	batch := tn.CutOne(t, sub)
	early, late := time.Now().Add(time.Hour).Truncate(time.Microsecond), time.Now().Add(2*time.Hour).
		Truncate(time.Microsecond)
	fates := []delivery.Fate{
		{DeliveryID: batch.Members[1].DeliveryID, Verdict: policy.Verdict{Action: policy.Retry, At: early}},
		{DeliveryID: batch.Members[2].DeliveryID, Verdict: policy.Verdict{
			Action: policy.DeadLetter, Reason: policy.ReasonTimeToLiveExceeded,
		}},
	}
	tn.Record(t, testnode.BatchResult(batch, sub, policy.Verdict{Action: policy.Retry, At: late}, fates...))

	require.Equal(t, 2, tn.Rows(t, "deliveries",
		"batch_id IS NOT NULL AND state = 'pending' AND next_attempt_at = $1 AND attempts = 1", late))
	require.Equal(t, 1, tn.Rows(t, "deliveries",
		"batch_id IS NULL AND event_id = 'e-1' AND next_attempt_at = $1 AND attempts = 1", early))
	require.Equal(t, 1, tn.Rows(t, "dead_letters",
		"event_id = 'e-2' AND reason = 'TimeToLiveExceeded' AND attempts = 1 AND last_status = 503"))
	require.Equal(t, 1, tn.Jobs(t, "kind = 'deliver' AND state = 'scheduled' AND scheduled_at = $1 AND args ->> 'n' = '2'",
		early))
	require.Equal(t, 1, tn.Rows(t, "batches", "members = 2 AND state = 'pending'"))
	require.Equal(t, 2, tn.Rows(t, "batch_members",
		"left_at IS NOT NULL AND (event_id, left_reason) IN (('e-1', 'OwnTime'), ('e-2', 'TimeToLiveExceeded'))"))
	require.Equal(t, 4, tn.Rows(t, "batch_members", ""))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

// Before a request: the job stays, and the batch goes on without those that left.
func TestMembersLeaveBeforeTheRequest(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.BatchingOrders(t, 10, 64)
	tn.Publish(t, "orders", "e", 3)
	batch := tn.CutOne(t, sub)
	gone := []delivery.Fate{
		{DeliveryID: batch.Members[0].DeliveryID, Verdict: policy.Verdict{
			Action: policy.DeadLetter, Reason: policy.ReasonTimeToLiveExceeded,
		}},
	}
	leave := testnode.BatchResult(batch, sub, policy.Verdict{Action: delivery.Leave}, gone...)
	leave.Number, leave.Bytes, leave.Status, leave.Outcome = 0, 0, 0, ""
	tn.Record(t, leave)

	again, err := testnode.LoadBatch(t, tn.System, sub, batch.Job, false)
	require.NoError(t, err)
	defer again.Release()
	require.Equal(t, []string{"e-1", "e-2"}, eventIDs(again))
	require.Zero(t, tn.Rows(t, "delivery_attempts", ""))
	require.Equal(t, 1, tn.Rows(t, "dead_letters", "event_id = 'e-0' AND attempts = 0 AND last_outcome IS NULL"))
	require.Equal(t, 1, tn.Rows(t, "batches", "members = 2 AND attempts = 0"))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))

	tn.Exec(t, "DELETE FROM postrider_internal.river_job")
	gone[0].DeliveryID = batch.Members[1].DeliveryID
	leave.Fates = gone
	require.ErrorIs(t, tn.System.Recorder.Record(t.Context(), leave), postgres.ErrNotFound)
	require.Equal(t, 1, tn.Rows(t, "dead_letters", ""), "without the token no member leaves")
}
