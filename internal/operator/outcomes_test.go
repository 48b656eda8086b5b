package operator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"postrider/internal/operator"
	"postrider/internal/query"
	"postrider/internal/testnode"
	"postrider/policy"
)

// outcomes is what became of an operation's redeliveries.
func outcomesOf(t *testing.T, tn *testnode.Node, id uuid.UUID) string {
	t.Helper()
	o, err := tn.System.Reader.Operation(t.Context(), id)
	require.NoError(t, err)
	if o.Outcomes == nil {
		return "none"
	}
	return fmt.Sprintf("pending %d delivered %d dead-lettered %d dropped %d canceled %d", o.Outcomes.Pending,
		o.Outcomes.Delivered, o.Outcomes.DeadLettered, o.Outcomes.Dropped, o.Outcomes.Canceled)
}

func TestOperationCountsTheOutcomesOfItsRedeliveries(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.ManyDeadLetters(t, 7)
	sub, err := tn.System.Subscriptions.Get(t.Context(), "orders", "all")
	require.NoError(t, err)
	tn.Publish(t, "orders", "other", 2) // deliveries of no operation
	id := redeliverAll(t, tn, &query.DeadLetterFilter{}, 0)
	require.Equal(t, "pending 0 delivered 0 dead-lettered 0 dropped 0 canceled 0", outcomesOf(t, tn, id))
	tn.Operate(t)
	require.Equal(t, "pending 7 delivered 0 dead-lettered 0 dropped 0 canceled 0", outcomesOf(t, tn, id))

	require.Equal(t, 4, tn.Refill(t, sub.ID, false, 4))
	ends := []policy.VerdictAction{policy.Delivered, policy.DeadLetter, policy.Drop, policy.Retry}
	deliveries, jobs := tn.Fetch(t, "node-1")
	for i, delivery := range deliveries {
		verdict := policy.Verdict{Action: policy.Delivered}
		if tn.Count(t, "SELECT count(*) FROM postrider.deliveries WHERE delivery_id = $1 AND operation_id = $2", delivery,
			id) == 1 {
			verdict = policy.Verdict{Action: ends[0], At: time.Now().Add(time.Hour), Reason: policy.ReasonHTTPBadRequest}
			ends = ends[1:]
		}
		tn.Record(t, testnode.Result(delivery, jobs[i], sub, verdict))
	}
	require.Empty(t, ends)
	require.Equal(t, "pending 4 delivered 1 dead-lettered 1 dropped 1 canceled 0", outcomesOf(t, tn, id))

	held := tn.Count(t,
		"SELECT min(delivery_id) FROM postrider.deliveries WHERE operation_id = $1 AND hold IS NOT NULL", id)
	require.NoError(t, tn.System.Operator.Cancel(t.Context(), int64(held)))
	require.Equal(t, "pending 3 delivered 1 dead-lettered 1 dropped 1 canceled 1", outcomesOf(t, tn, id))
	for state, want := range map[string]int{
		"": 7, "pending": 3, "delivered": 1, "dead_lettered": 1, "dropped": 1, "canceled": 1,
	} {
		page, err := tn.System.Reader.ReadDeliveries(t.Context(), query.DeliveryFilter{Operation: &id, State: state},
			query.Turn[query.DeliveryPlace]{Limit: 50})
		require.NoError(t, err)
		require.Len(t, page.Rows, want, state)
	}

	tn.MergeRollups(t)
	require.Equal(t, "pending 3 delivered 1 dead-lettered 1 dropped 1 canceled 1", outcomesOf(t, tn, id), "merged or not")
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", "all"))
	require.Equal(t, "pending 0 delivered 1 dead-lettered 1 dropped 1 canceled 4", outcomesOf(t, tn, id))
	tn.Exec(t, "TRUNCATE postrider_internal.delivery_history")
	require.Equal(t, "pending 0 delivered 1 dead-lettered 1 dropped 1 canceled 4", outcomesOf(t, tn, id),
		"the counts outlive the rows")

	tn.Exec(t, "UPDATE postrider_internal.operations SET finished_at = now() - interval '31 days'")
	tn.MergeRollups(t)
	require.NoError(t, tn.System.Operator.CleanOperations(t.Context()))
	require.Zero(t, tn.Count(t, "SELECT count(*) FROM postrider_internal.operation_outcomes"))
}

// Past events and members of batches are counted as single dead letters are; a purge has no redeliveries.
func TestOutcomesOfBatchesAndPastEvents(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.BatchingOrders(t, 10, 64)
	tn.Publish(t, "orders", "e", 4)
	tn.Record(t, testnode.BatchResult(tn.CutOne(t, sub), sub, policy.Verdict{Action: policy.Delivered}))
	id, err := tn.System.Operator.RedeliverEvents(t.Context(), "orders", sub.Name, time.Now().Add(-time.Hour), nil, 0)
	require.NoError(t, err)
	for more := true; more; {
		_, more = tn.Operate(t)
	}
	require.Equal(t, "pending 4 delivered 0 dead-lettered 0 dropped 0 canceled 0", outcomesOf(t, tn, id))
	tn.Refill(t, sub.ID, true, 100)
	tn.Record(t, testnode.BatchResult(tn.CutOne(t, sub), sub, policy.Verdict{Action: policy.Delivered}))
	require.Equal(t, "pending 0 delivered 4 dead-lettered 0 dropped 0 canceled 0", outcomesOf(t, tn, id))

	purge := tn.BeginOperation(t, &query.DeadLetterFilter{}, operator.Action{Kind: operator.Purge})
	require.Equal(t, "none", outcomesOf(t, tn, purge))
}
