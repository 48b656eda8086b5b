package operator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"postrider/internal/operator"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/internal/testnode"
)

// lastError is the last error of an operation; "" for none.
func lastError(t *testing.T, tn *testnode.Node, operation uuid.UUID) string {
	t.Helper()
	return tn.Text(t, fmt.Sprintf("SELECT coalesce(last_error, '') FROM postrider.operations WHERE operation_id = '%s'",
		operation))
}

// An operation that counts another number than expected changes nothing.
func TestOperationsExpectTheirCount(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.ManyDeadLetters(t, 1203)
	for _, kind := range []string{operator.Redeliver, operator.Purge, operator.Repair} {
		id := tn.BeginOperation(t, &query.DeadLetterFilter{Topic: new("orders")},
			operator.Action{Kind: kind, Expected: new(int64(1200)), Patch: []byte(`{"data":1}`)})
		_, more := tn.Operate(t)
		require.False(t, more)
		tn.RequireOperation(t, id, kind+" failed: matched 1203 done 0 skipped 0 failed 0")
		require.Equal(t, "expected 1,200, found 1,203; nothing was changed", lastError(t, tn, id))
	}
	require.Equal(t, 1203, tn.Rows(t, "dead_letters", "redelivered_at IS NULL"))
	require.Zero(t, tn.Pending(t, ""))
	require.Equal(t, 3, tn.Rows(t, "audit",
		"action = 'operation_finished' AND details ->> 'state' = 'failed' AND details ->> 'matched' = '1203'"))

	tn.Exec(t, `SELECT postrider.redeliver_all('{}', expected_count => 1203)`)
	tn.OperateOn(t)
	require.Equal(t, 1203, tn.Count(t, "SELECT done FROM postrider.operations ORDER BY operation_id DESC LIMIT 1"))
	require.Contains(t, tn.RejectedBy(t, "SELECT postrider.purge_all('{}', expected_count => -1)"),
		"expected_count must be 0 or more, is -1")
}

// What is dead-lettered after an operation has begun is not part of it: neither of its count nor of its steps.
func TestOperationsHaveAnUpperTime(t *testing.T) {
	t.Parallel()
	tn, letters := testnode.ManyDeadLetters(t, 4)
	id := tn.BeginOperation(t, &query.DeadLetterFilter{}, operator.Action{Kind: operator.Purge, Expected: new(int64(4))})
	tn.DeadLetters(t, "orders", "later", 1)
	tn.Operate(t)
	tn.RequireOperation(t, id, "purge running: matched 4 done 0 skipped 0 failed 0")
	tn.DeadLetters(t, "orders", "last", 1)
	tn.Exec(t, "SELECT postrider.purge($1)", letters[0])
	tn.Operate(t)
	tn.RequireOperation(t, id, "purge done: matched 4 done 3 skipped 1 failed 0")
	require.Equal(t, 2, tn.Rows(t, "dead_letters", ""))
}

// Ids that are given twice or do not exist count once and not at all.
func TestOperationsOnIDs(t *testing.T) {
	t.Parallel()
	tn, letters := testnode.ManyDeadLetters(t, 5)
	tn.Exec(t, "SELECT postrider.redeliver($1)", letters[2])
	ids := &query.DeadLetterFilter{DeadLetterIDs: append(letters[1:4:4], letters[1], uuid.New())}
	id := tn.BeginOperation(t, ids, operator.Action{Kind: operator.Redeliver})
	tn.OperateOn(t)
	tn.RequireOperation(t, id, "redeliver done: matched 2 done 2 skipped 0 failed 0")
	id = tn.BeginOperation(t, ids, operator.Action{Kind: operator.Redeliver, Again: true})
	tn.OperateOn(t)
	tn.RequireOperation(t, id, "redeliver done: matched 3 done 3 skipped 0 failed 0")

	many := make([]uuid.UUID, 10_001)
	_, err := tn.System.Operator.OnDeadLetters(t.Context(), &query.DeadLetterFilter{DeadLetterIDs: many},
		&operator.Action{Kind: operator.Purge})
	require.ErrorContains(t, err, "filter.dead_letter_ids holds at most 10000 ids, this one has 10001")
	for _, n := range []int{0, 10_001} {
		_, err = tn.System.Operator.OnDeliveries(t.Context(), &query.DeliveryFilter{DeliveryIDs: make([]int64, n)},
			&operator.Action{Kind: operator.Cancel})
		require.ErrorIs(t, err, postgres.ErrInvalid)
		require.EqualError(t, err, fmt.Sprintf("filter.deliveryIds must have between 1 and 10000 ids, not %d", n))
	}
}

// A delivery that cannot be retried or canceled does not stop the others. One that was created later is not touched.
func TestRetryAndCancelMany(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, counts, problem, changed string }{
		{
			operator.Retry, "retry done: matched 4 done 1 skipped 2 failed 1", "its event subscription is paused",
			"SELECT count(*) FROM postrider_internal.river_job WHERE args ->> 'd' = $1 AND scheduled_at <= now()",
		},
		{
			operator.Cancel, "cancel done: matched 4 done 3 skipped 1 failed 0", "",
			"SELECT count(*) FROM postrider.deliveries WHERE delivery_id = $1::text::bigint AND reason = 'CanceledByOperator'",
		},
	} {
		t.Run(c.kind, func(t *testing.T) {
			t.Parallel()
			tn, sub := testnode.Orders(t)
			tn.Topic(t, "paused")
			ids := tn.Fail(t, sub, 3)
			ids = append(ids, tn.Fail(t, tn.Subscribe(t, "paused", "all", nil), 1)...)
			tn.Pause(t, "paused", "all")
			tn.Exec(t, "UPDATE postrider_internal.river_job SET state = 'running', attempt = 1, attempted_at = now(), "+
				"attempted_by = '{node-1}' WHERE args ->> 'd' = $1", fmt.Sprint(ids[0]))
			id, err := tn.System.Operator.OnDeliveries(t.Context(), &query.DeliveryFilter{},
				&operator.Action{Kind: c.kind, Expected: new(int64(4))})
			require.NoError(t, err)
			tn.Operate(t)
			tn.Exec(t, "SELECT postrider.cancel($1)", ids[1])
			later := tn.Fail(t, sub, 1)[0]
			tn.OperateOn(t)
			tn.RequireOperation(t, id, c.counts)
			require.Contains(t, lastError(t, tn, id), c.problem)
			require.Equal(t, 1, tn.Count(t, c.changed, fmt.Sprint(ids[2])))
			require.Zero(t, tn.Count(t, c.changed, fmt.Sprint(later)))
			require.Zero(t, tn.Count(t, testnode.BrokenTokens))
			require.Zero(t, tn.Rows(t, "audit", "action = 'delivery_retried'"))
		})
	}
}

// The filters of deliveries find the same as the list.
func TestDeliveriesOfAnOperation(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	ids := tn.Fail(t, sub, 7)
	tn.Exec(t, "SELECT postrider.cancel($1)", ids[6])
	event := tn.Text(t, fmt.Sprintf("SELECT event_id FROM postrider.deliveries WHERE delivery_id = %d", ids[1]))
	now := time.Now()
	for _, c := range []struct {
		filter query.DeliveryFilter
		want   []int64
	}{
		{query.DeliveryFilter{}, ids[:6]},
		{query.DeliveryFilter{Topic: "orders", Subscription: sub.Name}, ids[:6]},
		{query.DeliveryFilter{Topic: "none"}, []int64{}},
		{query.DeliveryFilter{Hold: "paused"}, []int64{}},
		{query.DeliveryFilter{State: "canceled"}, []int64{}},
		{query.DeliveryFilter{Event: event}, ids[1:2]},
		{query.DeliveryFilter{DeliveryIDs: []int64{ids[2], ids[2], ids[6], 999_999}}, ids[2:3]},
		{query.DeliveryFilter{From: new(now.Add(-time.Hour)), To: new(now.Add(time.Hour))}, ids[:6]},
		{query.DeliveryFilter{From: new(now.Add(time.Hour))}, []int64{}},
		{query.DeliveryFilter{CreatedUntil: new(now.Add(-time.Hour))}, []int64{}},
	} {
		tx, err := tn.Pool.Begin(t.Context())
		require.NoError(t, err)
		var found query.FoundDeliveries
		list := []int64{}
		for steps := 0; !found.Last; steps++ {
			require.Less(t, steps, 9)
			found, err = query.NextDeliveries(t.Context(), tx, c.filter, now.Add(time.Hour), found.Reached, 4)
			require.NoError(t, err)
			list = append(list, found.IDs...)
		}
		require.NoError(t, tx.Rollback(t.Context()))
		require.Equal(t, c.want, list, "%+v", c.filter)
		counted, err := tn.System.Reader.CountDeliveries(t.Context(), c.filter)
		require.NoError(t, err)
		require.Equal(t, query.Matched{Matched: int64(len(c.want))}, counted)
	}
}

// The end of a pause that stopped the time to live moves time_to_live_since to the time of the resume. Deliveries that
// were created before an operation stay part of it.
func TestCreatedUntilDoesNotMove(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	ids := tn.Fail(t, sub, 3)
	_, err := tn.System.Holds.Pause(t.Context(), "orders", "all", new(true))
	require.NoError(t, err)
	tn.Publish(t, "orders", "paused", 2)
	id, err := tn.System.Operator.OnDeliveries(t.Context(), &query.DeliveryFilter{}, &operator.Action{
		Kind: operator.Cancel, Expected: new(int64(5)),
	})
	require.NoError(t, err)
	tn.Operate(t)
	tn.Resume(t, "orders", "all")
	require.NoError(t, tn.System.Holds.MoveTimeToLive(t.Context(), sub.ID))
	const moved = `SELECT count(*) FROM postrider_internal.deliveries d JOIN postrider_internal.operations o
		ON o.id = $1 AND d.time_to_live_since > o.created_at`
	require.Positive(t, tn.Count(t, moved, id))
	later := tn.Fail(t, sub, 1)
	tn.OperateOn(t)
	tn.RequireOperation(t, id, "cancel done: matched 5 done 5 skipped 0 failed 0")
	require.Equal(t, 1, tn.Rows(t, "deliveries", "state = 'pending'"))
	require.Zero(t, tn.Rows(t, "deliveries", "delivery_id = $1 AND state = 'canceled'", later[0]))
	require.Equal(t, 3, tn.Rows(t, "deliveries", "delivery_id = ANY ($1) AND state = 'canceled'", ids))
}
