package operator_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/operator"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/internal/testnode"
)

// TestResolve: an operator ends a dead letter without a redelivery, takes it back, and redelivers it after all.
func TestResolve(t *testing.T) {
	t.Parallel()
	tn, letters := testnode.ManyDeadLetters(t, 2)
	ctx := access.WithActor(t.Context(), access.Actor{Name: "ann", Address: "10.0.0.1"})
	open := func() int { return tn.Count(t, `SELECT postrider.count_dead_letters('{"state": "open"}')`) }

	require.NoError(t, tn.System.Operator.Resolve(ctx, letters[0], "the customer was refunded"))
	require.Equal(t, 1, tn.Rows(t, "dead_letters", "dead_letter_id = $1 AND state = 'resolved' AND resolved_by = 'ann' "+
		"AND resolved_at IS NOT NULL AND resolved_note = 'the customer was refunded'", letters[0]))
	require.Equal(t, 1, open())
	require.Equal(t, 1, tn.Rows(t, "audit", "action = 'dead_letter_resolved' AND actor = 'ann' AND topic = 'orders' AND "+
		"details = jsonb_build_object('deadLetterId', $1::text, 'note', 'the customer was refunded')", letters[0].String()))

	require.NoError(t, tn.System.Operator.Reopen(ctx, letters[0]))
	require.Equal(t, 1, tn.Rows(t, "dead_letters", "dead_letter_id = $1 AND state = 'open' AND resolved_by IS NULL "+
		"AND resolved_at IS NULL AND resolved_note IS NULL", letters[0]))
	require.Equal(t, 2, open())
	require.Equal(t, 1, tn.Rows(t, "audit", "action = 'dead_letter_reopened'"))

	require.Equal(t, "resolved", tn.Text(t, "SELECT postrider.resolve($1)", letters[0]))
	delivery, err := tn.System.Operator.Redeliver(ctx, letters[0], operator.Target{}, false)
	require.NoError(t, err, "a resolved one can be redelivered")
	require.Equal(t, 1, tn.Rows(t, "dead_letters", "dead_letter_id = $1 AND state = 'redelivered' AND "+
		"resolved_at IS NULL AND redelivery_id = $2 AND redelivery_state = 'pending'", letters[0], delivery))
	require.Equal(t, "redelivered", tn.Text(t, "SELECT postrider.reopen($1)", letters[0]))

	const long = "SELECT postrider.resolve($1, repeat('x', 1001))"
	require.Contains(t, tn.RejectedBy(t, long, letters[1]), "note must have at most 1000 characters, has 1001")
	require.Contains(t, tn.RejectedBy(t, "SELECT postrider.resolve($1)", uuid.Nil), "does not exist (SQLSTATE P0002)")
	require.ErrorIs(t, tn.System.Operator.Reopen(ctx, uuid.Nil), postgres.ErrNotFound)
	require.ErrorIs(t, tn.System.Operator.Resolve(ctx, letters[1], strings.Repeat("é", 1001)), postgres.ErrInvalid)
}

// TestRedeliveryThatFailsAgain: the first dead letter names the delivery and its end, the second one the first.
func TestRedeliveryThatFailsAgain(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	first := tn.DeadLetters(t, "orders", "e", 1)[0]
	delivery, err := tn.System.Operator.Redeliver(t.Context(), first, operator.Target{}, false)
	require.NoError(t, err)
	tn.Refill(t, sub.ID, false, 10)
	second := tn.DeadLetterAll(t)[1]
	require.Equal(t, 1, tn.Rows(t, "dead_letters", "dead_letter_id = $1 AND state = 'redelivered' AND redelivery_id = $2 "+
		"AND redelivery_state = 'dead_lettered'", first, delivery))
	require.Equal(t, 1, tn.Rows(t, "dead_letters", "dead_letter_id = $1 AND state = 'open' AND redelivered_from = $2",
		second, first))
}

// TestResolveAll: the operation takes open ones, unless the filter names a state.
func TestResolveAll(t *testing.T) {
	t.Parallel()
	tn, letters := testnode.ManyDeadLetters(t, 1003)
	tn.Exec(t, "SELECT postrider.redeliver($1)", letters[0])
	tn.Exec(t, "SELECT postrider.resolve($1, 'before')", letters[1])
	id := tn.BeginOperation(t, &query.DeadLetterFilter{Topic: new("orders")},
		operator.Action{Kind: operator.Resolve, Note: "outage of 28 November", Expected: new(int64(1001))})
	tn.OperateOn(t)
	tn.RequireOperation(t, id, "resolve done: matched 1001 done 1001 skipped 0 failed 0")
	require.Equal(t, 1001, tn.Rows(t, "dead_letters", "state = 'resolved' AND resolved_note = 'outage of 28 November' "+
		"AND resolved_by = 'postrider'"))
	require.Equal(t, 1, tn.Rows(t, "dead_letters", "state = 'resolved' AND resolved_note = 'before'"))
	require.Equal(t, 1, tn.Rows(t, "operations", "kind = 'resolve' AND note = 'outage of 28 November'"))

	again := tn.Text(t, `SELECT postrider.resolve_all('{"state": "redelivered"}', 'done', 1)`)
	tn.OperateOn(t)
	tn.RequireOperation(t, uuid.MustParse(again), "resolve done: matched 1 done 1 skipped 0 failed 0")
	require.Equal(t, 0, tn.Count(t, `SELECT postrider.count_dead_letters('{"state": "redelivered"}')`))
	// again takes those redelivered before, and resolved ones only if the filter says so.
	tn.Exec(t, "SELECT postrider.reopen($1)", letters[0])
	all := tn.Text(t, `SELECT postrider.redeliver_all('{}', again => true)`)
	tn.OperateOn(t)
	tn.RequireOperation(t, uuid.MustParse(all), "redeliver done: matched 1003 done 1 skipped 1002 failed 0")
	some := tn.Text(t, `SELECT postrider.redeliver_all('{"state": "resolved", "event_id": "e-1"}')`)
	tn.OperateOn(t)
	tn.RequireOperation(t, uuid.MustParse(some), "redeliver done: matched 1 done 1 skipped 0 failed 0")

	require.Contains(t, tn.RejectedBy(t, `SELECT postrider.resolve_all('{}', repeat('x', 1001))`), "note must have")
	require.Contains(t, tn.RejectedBy(t, `SELECT postrider.resolve_all('{"state": "closed"}')`),
		`filter.state must be open, redelivered or resolved, is "closed"`)
}

// TestRedeliverEvent: a delivered event is delivered once more, to the event subscription that the operator names.
func TestRedeliverEvent(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	tn.Publish(t, "orders", "e", 1)
	event := uuid.MustParse(tn.Text(t, "SELECT system_id FROM postrider.events"))
	require.Contains(t, tn.RejectedBy(t, "SELECT postrider.redeliver_event($1, 'all')", event), " is pending")
	tn.RecordSome(t, sub, "n1")
	require.Equal(t, 1, tn.Rows(t, "deliveries", "state = 'delivered'"))

	ctx := access.WithActor(t.Context(), access.Actor{Name: "ann"})
	delivery, err := tn.System.Operator.RedeliverEvent(ctx, event, "all", false)
	require.NoError(t, err)
	require.Equal(t, 1, tn.Rows(t, "deliveries", "delivery_id = $1 AND state = 'pending' AND attempts = 0 AND "+
		"redelivered_from = $2 AND system_id = $2 AND operation_id IS NULL", delivery, event))
	require.Equal(t, 1, tn.Rows(t, "audit", "action = 'event_redelivered' AND actor = 'ann' AND topic = 'orders' AND "+
		"subscription = 'all' AND details ->> 'deliveryId' = $1", fmt.Sprint(delivery)))
	details, err := tn.System.Reader.ReadDelivery(t.Context(), delivery)
	require.NoError(t, err)
	require.Equal(t, "event", details.RedeliveredFromKind)

	require.Equal(t, 1, tn.Refill(t, sub.ID, false, 10))
	letter := tn.DeadLetterAll(t)[0]
	again, err := tn.System.Operator.RedeliverEvent(ctx, event, "all", false)
	require.NoError(t, err)
	require.Equal(t, 1, tn.Rows(t, "dead_letters", "dead_letter_id = $1 AND state = 'redelivered' AND redelivery_id = $2",
		letter, again), "its last delivery became a dead letter, which is redelivered")
}

func TestRedeliverEventRejects(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	tn.Publish(t, "orders", "e", 1)
	event := uuid.MustParse(tn.Text(t, "SELECT system_id FROM postrider.events"))
	tn.Subscribe(t, "orders", "later", nil)
	const call = "SELECT postrider.redeliver_event($1, $2)"
	require.Contains(t, tn.RejectedBy(t, call, uuid.Nil, "all"), "does not exist, or is no longer kept (SQLSTATE P0002)")
	require.Contains(t, tn.RejectedBy(t, "SELECT postrider.redeliver_event(NULL, 'all')"), "system_id is required")
	require.Contains(t, tn.RejectedBy(t, call, event, nil), "subscription is required")
	require.Contains(t, tn.RejectedBy(t, call, event, "missing"), `topic "orders" has no event subscription "missing"`)
	require.Contains(t, tn.RejectedBy(t, call, event, "later"), `did not match event subscription "later"`)
	_, err := tn.System.Operator.RedeliverEvent(t.Context(), event, "later", false)
	require.ErrorIs(t, err, postgres.ErrConflict)

	delivery, err := tn.System.Operator.RedeliverEvent(t.Context(), event, "later", true)
	require.NoError(t, err)
	require.Equal(t, 1, tn.Rows(t, "deliveries", "delivery_id = $1 AND subscription = 'later'", delivery))
	require.Contains(t, tn.RejectedBy(t, call, event, "later"), fmt.Sprintf("delivery %d of event", delivery))
	require.NoError(t, tn.System.Operator.Cancel(t.Context(), delivery))
	tn.Exec(t, "SELECT postrider.redeliver_event($1, 'later')", event)

	tn.Exec(t, `SELECT postrider.publish('orders', '{"id":"s-1","eventType":"t","subject":"s"}')`)
	unrouted := uuid.MustParse(tn.Text(t, "SELECT system_id FROM postrider.events WHERE event_id = 's-1'"))
	require.Contains(t, tn.RejectedBy(t, "SELECT postrider.redeliver_event($1, 'all', true)", unrouted),
		"is not routed yet", "it will get its delivery")

	tn.Exec(t, "SELECT postrider.erase_event($1)", event)
	require.Contains(t, tn.RejectedBy(t, call, event, "later"), "was erased")
}

// A dead letter that is redelivered while an operation waits for it is not resolved, too.
func TestResolveAllAfterARedelivery(t *testing.T) {
	t.Parallel()
	tn, letters := testnode.ManyDeadLetters(t, 2)
	id := tn.BeginOperation(t, &query.DeadLetterFilter{}, operator.Action{Kind: operator.Resolve})
	tn.Operate(t) // counts
	end := tn.OpenTransaction(t, "SELECT postrider.redeliver($1)", letters[0])
	stepped := make(chan struct{})
	go func() {
		tn.Operate(t)
		close(stepped)
	}()
	tn.AwaitLock(t, "step_dead_letters")
	end(true)
	<-stepped
	tn.RequireOperation(t, id, "resolve done: matched 2 done 1 skipped 1 failed 0")
	require.Equal(t, 1, tn.Rows(t, "dead_letters", "dead_letter_id = $1 AND state = 'redelivered'", letters[0]))
}
