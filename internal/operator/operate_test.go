package operator_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/catalog"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/jobs/delivery"
	"postrider/policy"
)

// functionError is the error of a function.
func functionError(t *testing.T, err error) *postgres.FunctionError {
	t.Helper()
	var no *postgres.FunctionError
	require.ErrorAs(t, err, &no)
	return no
}

// requireEnded: the delivery has ended so, once, with nothing left of it.
func requireEnded(t *testing.T, tn *testnode.Node, delivery int64, state, reason string) {
	t.Helper()
	require.Equal(t, 1, tn.Rows(t, "deliveries", "delivery_id = $1", delivery))
	require.Equal(t, 1, tn.Rows(t, "deliveries", "delivery_id = $1 AND state = $2 AND reason = $3 AND hold IS NULL "+
		"AND finished_at IS NOT NULL", delivery, state, reason))
	require.Zero(t, tn.Jobs(t, "args ->> 'd' = $1::text", fmt.Sprint(delivery)))
	require.Equal(t, 1, tn.Count(t,
		"SELECT coalesce(sum(count), 0) FROM postrider.delivery_counts WHERE kind = $1 AND detail = $2", state, reason))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

func TestCancelEndsEveryPendingDelivery(t *testing.T) {
	t.Parallel()
	for name, pending := range map[string]func(*testing.T, *testnode.Node, *catalog.Subscription){
		"due":     func(t *testing.T, tn *testnode.Node, _ *catalog.Subscription) { tn.Publish(t, "orders", "e", 1) },
		"waiting": func(t *testing.T, tn *testnode.Node, sub *catalog.Subscription) { tn.Fail(t, sub, 1) },
		"running": func(t *testing.T, tn *testnode.Node, _ *catalog.Subscription) {
			tn.Publish(t, "orders", "e", 1)
			tn.Fetch(t, "node-1")
		},
		"on hold": func(t *testing.T, tn *testnode.Node, _ *catalog.Subscription) {
			tn.Pause(t, "orders", "all")
			tn.Publish(t, "orders", "e", 1)
		},
		"open": func(t *testing.T, tn *testnode.Node, _ *catalog.Subscription) {
			tn.Subscribe(t, "orders", "all", testnode.Batching(10, 64))
			tn.Publish(t, "orders", "e", 1)
		},
		"without its job": func(t *testing.T, tn *testnode.Node, _ *catalog.Subscription) {
			tn.Publish(t, "orders", "e", 1)
			tn.Exec(t, "DELETE FROM postrider_internal.river_job")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn, sub := testnode.Orders(t)
			pending(t, tn, sub)
			id := int64(tn.Count(t, "SELECT id FROM postrider_internal.deliveries"))
			ctx := access.WithActor(t.Context(), access.Actor{Name: "anna", Address: "192.0.2.1"})
			require.NoError(t, tn.System.Operator.Cancel(ctx, id))
			requireEnded(t, tn, id, "canceled", "CanceledByOperator")
			require.Equal(t, 1, tn.Rows(t, "audit", "actor = 'anna' AND address = '192.0.2.1' "+
				"AND action = 'delivery_canceled' AND topic = 'orders' AND subscription = 'all' "+
				"AND details = jsonb_build_object('deliveryId', $1::bigint)", id))

			err := tn.System.Operator.Cancel(ctx, id)
			require.ErrorIs(t, err, postgres.ErrConflict)
			require.Equal(t, fmt.Sprintf("delivery %d has ended: canceled", id), functionError(t, err).Message)
		})
	}
}

func TestActionsOnUnknownDeliveries(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	_, letter := tn.System.Operator.DeadLetterNow(t.Context(), 7)
	for _, err := range []error{
		tn.System.Operator.Cancel(t.Context(), 7), tn.System.Operator.RetryNow(t.Context(), 7), letter,
	} {
		require.ErrorIs(t, err, postgres.ErrNotFound)
		require.Equal(t, "delivery 7 does not exist", functionError(t, err).Message)
		require.Contains(t, functionError(t, err).Hint, "postrider.deliveries")
	}
	require.ErrorContains(t, tn.System.Reader.Ping(cancelled()), "canceled")
	require.ErrorIs(t, tn.System.Operator.Cancel(cancelled(), 7), context.Canceled)
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// Dead-lettering by hand creates the same dead letter as recording an attempt.
func TestDeadLetterNowEqualsARecordedDeadLetter(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	given := tn.Fail(t, sub, 1)[0]
	d, j := tn.Started(t, "orders", "e", 1)
	recorded := testnode.Result(d[0], j[0], sub,
		policy.Verdict{Action: policy.DeadLetter, Reason: policy.ReasonMaxDeliveryAttemptsExceeded})
	recorded.Error, recorded.ResponseExcerpt = "it broke", []byte("busy")
	tn.Record(t, recorded)

	letter, err := tn.System.Operator.DeadLetterNow(t.Context(), given)
	require.NoError(t, err)

	require.Equal(t, uuid.Version(7), letter.Version(), "in the order of time, as all are")
	requireEnded(t, tn, given, "dead_lettered", "DeadLetteredByOperator")
	require.Equal(t, 1, tn.Rows(t, "deliveries", "dead_letter_id = $1 AND delivery_id = $2", letter, given))
	require.Equal(t, 1, tn.Rows(t, "dead_letters",
		"dead_letter_id = $1 AND body ->> 'id' = 'failed-0' AND body_text IS NOT NULL", letter))
	require.Equal(t, 1, tn.Rows(t, "audit", "action = 'delivery_dead_lettered' AND details ->> 'deadLetterId' = $1::text",
		letter.String()))
	const own = `'{id,dead_lettered_at,delivery_id,reason,event_uuid,event_id,subject,body,first_attempt_at,` +
		`last_attempt_at,time_to_live_since,published_at}'::text[]`
	require.Equal(t, 1, tn.Count(t, "SELECT count(DISTINCT to_jsonb(l) - "+own+") FROM postrider_internal.dead_letters l"),
		"all else is the same")
	require.Equal(t, 2, tn.Count(t, `SELECT count(*) FROM postrider_internal.dead_letters l
		JOIN postrider_internal.delivery_history h ON h.id = l.delivery_id
		WHERE (l.first_attempt_at, l.last_attempt_at, l.time_to_live_since, l.event_uuid) = (h.first_attempt_at,
		    h.last_attempt_at, h.time_to_live_since, h.event_uuid)`))
	require.Equal(t, 1, tn.Count(t, "SELECT count(DISTINCT to_jsonb(h) - '{id,state,reason,event_uuid,dead_letter_id,"+
		"finished_at,first_attempt_at,last_attempt_at,"+
		"time_to_live_since}'::text[]) FROM postrider_internal.delivery_history h"))
	_, err = tn.System.Operator.DeadLetterNow(t.Context(), given)
	require.Contains(t, functionError(t, err).Hint, "dead_letters")
}

func TestDeadLetterNowIsNotified(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	tn.SubscribeToNotices(t)
	ids := tn.Fail(t, sub, 2)
	require.NoError(t, testnode.ErrorOf(tn.System.Operator.DeadLetterNow(t.Context(), ids[0])))
	require.NoError(t, tn.System.Operator.Cancel(t.Context(), ids[1]))
	notices := tn.PublishNotices(t)
	require.Len(t, notices, 1, "an operator who cancels needs no notice")
	require.Equal(t, "postrider.deadLetter.created", notices[0].Type)
	require.Equal(t, "DeadLetteredByOperator", notices[0].Data["reason"])
}

func TestDeadLetterNowNeedsTheEvent(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	id := tn.Fail(t, sub, 1)[0]
	tn.Exec(t, "DELETE FROM postrider_internal.events")
	_, err := tn.System.Operator.DeadLetterNow(t.Context(), id)
	require.Equal(t, fmt.Sprintf("the event of delivery %d is gone", id), functionError(t, err).Message)
	require.Equal(t, 1, tn.Rows(t, "deliveries", "state = 'pending'"), "nothing was done")
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	require.NoError(t, tn.System.Operator.Cancel(t.Context(), id))
}

func TestRetryNowInsertsANewJob(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	id := tn.Fail(t, sub, 1)[0]
	tn.Exec(t, `UPDATE postrider_internal.river_job SET args = args || '{"r": 3}', attempt = 2`)
	before := tn.Count(t, "SELECT id FROM postrider_internal.river_job")

	require.NoError(t, tn.System.Operator.RetryNow(t.Context(), id))

	const due = `SELECT count(*) FROM postrider_internal.deliveries d JOIN postrider_internal.river_job j
		    ON j.id = d.job_id
		WHERE j.id > $1 AND j.state = 'available' AND j.scheduled_at <= now() AND d.next_attempt_at <= now()
		  AND d.attempts = 1 AND j.args ->> 'n' = '2' AND j.args ->> 'r' = '5' AND j.attempt = 0`
	require.Equal(t, 1, tn.Count(t, due, before), "a job row never serves two attempts; its reruns are counted on")
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	require.Equal(t, 1, tn.Rows(t, "audit", "action = 'delivery_retried'"))

	after := tn.Count(t, "SELECT id FROM postrider_internal.river_job")
	require.NoError(t, tn.System.Operator.RetryNow(t.Context(), id))
	require.Equal(t, after, tn.Count(t, "SELECT id FROM postrider_internal.river_job"),
		"what is due keeps its place in the queue")
	require.Equal(t, 1, tn.Rows(t, "audit", "action = 'delivery_retried'"))
}

func TestRetryNowIsRejected(t *testing.T) {
	t.Parallel()
	pause := func(t *testing.T, tn *testnode.Node) {
		tn.Pause(t, "orders", "all")
	}
	for name, row := range map[string]struct {
		change        func(*testing.T, *testnode.Node)
		kind          error
		message, hint string
	}{
		"running": {
			func(t *testing.T, tn *testnode.Node) {
				tn.Exec(t, "UPDATE postrider_internal.river_job SET state = 'running'")
			},
			postgres.ErrConflict, "an attempt of delivery 1 is in progress", "Wait",
		},
		"paused": {
			pause, postgres.ErrPaused, `event subscription "all" of topic "orders" is paused`,
			`SELECT postrider.resume('orders', 'all') ends the pause.`,
		},
		"rests": {
			func(t *testing.T, tn *testnode.Node) { tn.Rest(t, "all") }, postgres.ErrConflict,
			`event subscription "all" of topic "orders" is in probation`, `SELECT postrider.release('orders', 'all') ends`,
		},
		"unproven": {
			func(t *testing.T, tn *testnode.Node) {
				tn.Exec(t, "INSERT INTO postrider_internal.event_subscription_states (subscription_id, not_validated_since) "+
					"VALUES (1, now())")
			}, postgres.ErrNotValidated, `event subscription "all" of topic "orders" is waiting for its endpoint's validation`,
			"validate",
		},
		"deleted": {func(t *testing.T, tn *testnode.Node) {
			tn.Exec(t, "UPDATE postrider_internal.event_subscriptions SET deleted_at = now()")
		}, postgres.ErrConflict, `event subscription "all" of topic "orders" was deleted`, "canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn, sub := testnode.Orders(t)
			id := tn.Fail(t, sub, 1)[0]
			row.change(t, tn)
			err := tn.System.Operator.RetryNow(t.Context(), id)
			require.ErrorIs(t, err, row.kind)
			require.Equal(t, row.message, functionError(t, err).Message)
			require.Contains(t, functionError(t, err).Hint, row.hint)
			require.Equal(t, 1, tn.Pending(t, "next_attempt_at > now() + interval '59 minutes'"))
		})
	}
}

// Behind the admission limit no delivery overtakes: it is only due, and the next refill takes it.
func TestRetryNowOfADeliveryThatWaitsForAdmission(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	id := tn.Fail(t, sub, 1)[0]
	tn.Exec(t, "DELETE FROM postrider_internal.river_job")
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET job_id = NULL, hold = 'admission'")
	require.NoError(t, tn.System.Operator.RetryNow(t.Context(), id))
	require.Equal(t, 1, tn.Pending(t, "hold = 'admission' AND job_id IS NULL AND next_attempt_at <= now()"))
	n, err := tn.System.Releaser.Refill(t.Context(), sub.ID, false, 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, 1, tn.Jobs(t, "scheduled_at <= now() AND args ->> 'n' = '2'"))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

const leftQuery = "SELECT count(*) FROM postrider.batch_members WHERE delivery_id = $1 AND left_at IS NOT NULL " +
	"AND left_reason = $2 AND left_after = $3"

func TestOperatorsRemoveMembersFromABatch(t *testing.T) {
	t.Parallel()
	for name, verdict := range map[string]policy.Verdict{
		"waiting": {Action: policy.Retry, At: time.Now().Add(time.Hour)},
		"on hold": {Action: delivery.Hold, Reason: catalog.HoldAdmission},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn, sub := testnode.BatchingOrders(t, 10, 64)
			batch := tn.WaitingBatch(t, sub, 4, verdict)
			tn.Exec(t, "UPDATE postrider_internal.batches SET next_attempt_at = now() + interval '1 hour' WHERE hold "+
				"IS NOT NULL")
			ids := make([]int64, 4)
			for i, m := range batch.Members {
				ids[i] = m.DeliveryID
			}
			attempts := tn.Count(t, "SELECT attempts FROM postrider_internal.deliveries WHERE id = $1", ids[0])

			require.NoError(t, tn.System.Operator.Cancel(t.Context(), ids[0]))
			requireEnded(t, tn, ids[0], "canceled", "CanceledByOperator")
			require.Equal(t, 1, tn.Count(t, leftQuery, ids[0], "CanceledByOperator", attempts))
			letter, err := tn.System.Operator.DeadLetterNow(t.Context(), ids[1])
			require.NoError(t, err)
			requireEnded(t, tn, ids[1], "dead_lettered", "DeadLetteredByOperator")
			require.Equal(t, 1, tn.Rows(t, "dead_letters",
				"dead_letter_id = $1 AND last_outcome IS NOT DISTINCT FROM CASE attempts WHEN 1 THEN 'Busy' END", letter))
			require.NoError(t, tn.System.Operator.RetryNow(t.Context(), ids[2]))
			require.Equal(t, 1, tn.Count(t, leftQuery, ids[2], "RetriedByOperator", attempts))
			require.Equal(t, 1, tn.Pending(t, "id = $1 AND batch_id IS NULL AND next_attempt_at <= now()", ids[2]))
			require.Equal(t, 1, tn.Count(t, "SELECT members FROM postrider.batches WHERE state = 'pending'"))
			require.Zero(t, tn.Count(t, testnode.BrokenTokens))

			require.NoError(t, tn.System.Operator.Cancel(t.Context(), ids[3]))
			require.Equal(t, 1, tn.Rows(t, "batches",
				"state = 'canceled' AND members = 0 AND finished_at IS NOT NULL AND hold IS NULL"), "with the last one it ends")
			require.Zero(t, tn.Jobs(t, "kind = 'batch'"))
			require.Zero(t, tn.Count(t, testnode.BrokenTokens))
		})
	}
}

// A member is canceled while the batch's request is in progress, in a transaction that the recording has to wait for.
// The others are recorded, and it has left.
func TestCancelOfAMemberWhileItsBatchIsRecorded(t *testing.T) {
	t.Parallel()
	for action, states := range map[policy.VerdictAction]string{policy.Delivered: "delivered", policy.Retry: "pending"} {
		t.Run(string(action), func(t *testing.T) {
			t.Parallel()
			tn, sub := testnode.BatchingOrders(t, 10, 64)
			tn.Publish(t, "orders", "e", 3)
			batch := tn.CutOne(t, sub)
			id := batch.Members[1].DeliveryID
			end := tn.OpenTransaction(t, "SELECT postrider.cancel($1)", id)
			recorded := make(chan error, 1)
			go func() {
				fate := delivery.Fate{DeliveryID: id, Verdict: policy.Verdict{Action: policy.Retry, At: time.Now()}}
				recorded <- tn.System.Recorder.Record(context.Background(),
					testnode.BatchResult(batch, sub, policy.Verdict{Action: action, At: time.Now().Add(time.Hour)}, fate))
			}()
			tn.AwaitLock(t, "")
			end(true)
			require.NoError(t, <-recorded)

			requireEnded(t, tn, id, "canceled", "CanceledByOperator")
			require.Equal(t, 1, tn.Count(t, leftQuery, id, "CanceledByOperator", 0))
			require.Equal(t, 2, tn.Rows(t, "deliveries", "state = $1 AND attempts = 1", states))
			require.Equal(t, 2, tn.Count(t, "SELECT members FROM postrider.batches"))
			require.Zero(t, tn.Count(t, testnode.BrokenTokens))
		})
	}
}

// An operator's open transaction with a canceled delivery does not keep the node from recording others.
func TestIdleTransactionOfAnOperatorIsEnded(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	d, j := tn.Started(t, "orders", "e", 1)
	config := tn.Pool.Config().ConnConfig.Copy()
	config.RuntimeParams["idle_in_transaction_session_timeout"] = "0" // as psql has it
	person, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	defer func() { _ = person.Close(context.Background()) }()
	_, err = person.Exec(t.Context(), "SELECT postrider.resume('orders', 'all')")
	require.NoError(t, err)
	var after string
	require.NoError(t, person.QueryRow(t.Context(), "SHOW idle_in_transaction_session_timeout").Scan(&after))
	require.Equal(t, "0", after, "the function's limit is for its transaction alone")

	_, err = person.Exec(t.Context(), fmt.Sprintf("BEGIN; SELECT postrider.cancel(%d)", d[0]))
	require.NoError(t, err)
	tn.Record(t, testnode.Result(d[0], j[0], sub, policy.Verdict{Action: policy.Delivered}))
	require.Equal(t, 1, tn.Rows(t, "deliveries", "state = 'delivered'"))
	require.Error(t, testnode.ErrorOf(person.Exec(t.Context(), "COMMIT")))
}

func TestDeliveryIsReadWithItsAttempts(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.BatchingOrders(t, 10, 64)
	batch := tn.WaitingBatch(t, sub, 2, policy.Verdict{Action: policy.Retry, At: time.Now().Add(time.Hour)})
	id := batch.Members[0].DeliveryID
	require.NoError(t, tn.System.Operator.RetryNow(t.Context(), id))
	d, j := tn.Fetch(t, "node-1")
	require.Equal(t, []int64{id}, d)
	alone := testnode.Result(id, j[0], sub, policy.Verdict{Action: policy.Delivered})
	alone.Number = 2
	tn.Record(t, alone)

	found, err := tn.System.Reader.Delivery(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, "delivered", found.State)
	require.Equal(t, 2, found.Attempts)
	require.Equal(t, "e-0", *found.EventID)
	attempts, err := tn.System.Reader.Attempts(t.Context(), id, 100)
	require.NoError(t, err)
	require.Len(t, attempts, 2)
	require.Equal(t, &batch.BatchID, attempts[0].BatchID)
	require.Nil(t, attempts[1].BatchID)
	require.ErrorIs(t, testnode.ErrorOf(tn.System.Reader.Delivery(t.Context(), 7777)), postgres.ErrNotFound)
}
