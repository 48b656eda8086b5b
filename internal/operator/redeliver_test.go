package operator_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/operator"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/internal/testnode"
	"postrider/jobs/queue"
)

func TestRedeliver(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	letter := tn.DeadLetters(t, "orders", "e", 1)[0]
	ctx := access.WithActor(t.Context(), access.Actor{Name: "ann", Address: "10.0.0.1"})
	before := tn.Pending(t, "")
	require.Zero(t, before)

	delivery, err := tn.System.Operator.Redeliver(ctx, letter, operator.Target{}, false)
	require.NoError(t, err)

	require.Equal(t, 1, tn.Rows(t, "deliveries", "delivery_id = $1 AND state = 'pending' AND hold = 'admission' AND "+
		"attempts = 0 AND redelivered_from = $2 AND time_to_live_since > now() - interval '1 minute' "+
		"AND next_attempt_at IS NULL AND event_id = 'e-0' AND topic = 'orders' AND subscription = 'all'", delivery, letter))
	require.Equal(t, 1,
		tn.Count(t, "SELECT count(*) FROM postrider_internal.deliveries d JOIN postrider_internal.events e "+
			"ON e.id = d.event_uuid AND e.day = d.event_day WHERE d.event_bytes = octet_length(e.body)"))
	require.Equal(t, 1, tn.Rows(t, "dead_letters", "dead_letter_id = $1 AND redelivered_at IS NOT NULL", letter),
		"the dead letter stays")
	require.Equal(t, 1, tn.Events(t, ""), "its event is still there")
	require.Equal(t, 2, tn.Count(t, "SELECT sum(count) FROM postrider.delivery_counts WHERE kind = 'matched' "+
		"AND subscription = 'all' AND topic = 'orders'"))
	require.Equal(t, 1, tn.Rows(t, "audit", "action = 'dead_letter_redelivered' AND actor = 'ann' AND address = "+
		"'10.0.0.1' AND topic = 'orders' AND subscription = 'all' AND details ->> 'deadLetterId' = $1 "+
		"AND details ->> 'deliveryId' = $2", letter.String(), fmt.Sprint(delivery)))

	require.Equal(t, 1, tn.Refill(t, sub.ID, false, 10))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	again := tn.DeadLetterAll(t)
	require.Len(t, again, 2)
	require.Equal(t, 1, tn.Rows(t, "dead_letters", "dead_letter_id = $1 AND redelivered_from = $2", again[1], letter),
		"lineage")
	details, err := tn.System.Reader.ReadDelivery(t.Context(), delivery)
	require.NoError(t, err)
	require.Equal(t, "dead letter", details.RedeliveredFromKind)
	row, err := tn.System.Reader.ReadDeadLetter(t.Context(), again[1])
	require.NoError(t, err)
	require.Equal(t, "dead letter", row.RedeliveredFromKind)
}

func TestRedeliverRejects(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	tn.Subscribe(t, "orders", "other", func(s *catalog.SubscriptionSpec) { s.Filter.SubjectBeginsWith = "nothing" })
	letters := tn.DeadLetters(t, "orders", "e", 3)
	const call = "SELECT postrider.redeliver($1)"
	require.Contains(t, tn.RejectedBy(t, call, uuid.Nil),
		"dead letter 00000000-0000-0000-0000-000000000000 does not exist (SQLSTATE P0002)")
	require.Contains(t, tn.RejectedBy(t, "SELECT postrider.redeliver(NULL)"), "dead_letter_id is required")
	require.Contains(t, tn.RejectedBy(t, "SELECT postrider.redeliver($1, topic => 'orders')", letters[0]),
		"subscription is required with topic")
	require.Contains(t, tn.RejectedBy(t, "SELECT postrider.redeliver($1, 'missing')", letters[0]),
		`topic "orders" has no event subscription "missing" (SQLSTATE 22023)`)
	require.Contains(t, tn.RejectedBy(t, "SELECT postrider.redeliver($1, 'all', 'elsewhere')", letters[0]),
		`topic "elsewhere" has no event subscription "all"`)

	tn.Exec(t, call, letters[0])
	require.Contains(t, tn.RejectedBy(t, call, letters[0]), "was redelivered already, at ")
	tn.Exec(t, "SELECT postrider.redeliver($1, again => true)", letters[0])

	tn.Exec(t, "UPDATE postrider_internal.dead_letters SET body = '' WHERE id = $1", letters[2])
	require.Contains(t, tn.RejectedBy(t, call, letters[2]), "was erased")
	tn.Exec(t, "UPDATE postrider_internal.event_subscriptions SET expiration_time_utc = now() WHERE name = 'all'")
	require.Contains(t, tn.RejectedBy(t, call, letters[1]),
		`event subscription "all" of topic "orders" has expired (SQLSTATE 55000)`)
	require.Contains(t, tn.RejectedBy(t, "SELECT postrider.redeliver($1, 'all')", letters[1]), "has expired")
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", "all"))
	require.Contains(t, tn.RejectedBy(t, call, letters[1]), `event subscription "all" of topic "orders" was deleted`)

	_, err := tn.System.Operator.Redeliver(t.Context(), letters[1], operator.Target{}, false)
	var rejection *postgres.FunctionError
	require.ErrorAs(t, err, &rejection)
	require.ErrorIs(t, err, postgres.ErrConflict)
	require.Equal(t, "Name another one as subscription.", rejection.Hint)
	_, err = tn.System.Operator.Redeliver(t.Context(), uuid.Nil, operator.Target{}, false)
	require.ErrorIs(t, err, postgres.ErrNotFound)
	_, err = tn.System.Operator.Redeliver(t.Context(), letters[1], operator.Target{Subscription: "missing"}, false)
	require.ErrorIs(t, err, postgres.ErrInvalid)

	delivery, err := tn.System.Operator.Redeliver(t.Context(), letters[1], operator.Target{Subscription: "other"}, false)
	require.NoError(t, err, "another one may be named")
	require.Equal(t, 1, tn.Rows(t, "deliveries", "delivery_id = $1 AND subscription = 'other' AND state = 'pending'",
		delivery))
}

// A redelivery into another topic belongs to that topic, and takes no event to where it cannot be delivered.
func TestRedeliverElsewhere(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	tn.Topic(t, "repairs")
	tn.Subscribe(t, "repairs", "desk", nil)
	tn.Subscribe(t, "repairs", "received", nil)
	tn.Exec(t, "UPDATE postrider_internal.event_subscriptions SET event_delivery_schema = 'CustomInputSchema' "+
		"WHERE name = 'received'")
	letter := tn.DeadLetters(t, "orders", "e", 1)[0]
	require.Contains(t, tn.RejectedBy(t, "SELECT postrider.redeliver($1, 'received', 'repairs')", letter),
		`an event of EventGridSchema cannot be delivered in the schema of event subscription "received" of topic "repairs"`)
	tn.Exec(t, "SELECT postrider.redeliver($1, 'desk', 'repairs')", letter)
	require.Equal(t, 1, tn.Rows(t, "deliveries", "topic = 'repairs' AND subscription = 'desk' AND event_id = 'e-0'"))
	require.Equal(t, 1, tn.Rows(t, "delivery_counts",
		"topic = 'repairs' AND subscription = 'desk' AND kind = 'matched' AND count = 1"))
}

// SQL and package event say the same of what may be delivered as what.
func TestCanDeliverAsPackageEventSays(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	for _, input := range []event.Schema{event.EventGrid, event.CloudEvents, event.Custom, event.CustomInput} {
		for _, delivery := range []event.Schema{event.EventGrid, event.CloudEvents, event.Custom, event.CustomInput} {
			can := testnode.Value[bool](t, tn, "SELECT postrider_internal.can_deliver($1, $2)", string(input),
				string(delivery))
			require.Equal(t, event.CanDeliver(input, delivery), can, "%s as %s", input, delivery)
		}
	}
}

// The event is stored again from the dead letter, for the new delivery only.
func TestRedeliverAfterRetentionRemovedTheEvent(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.CustomTopic(t, "custom")
	sub := tn.Subscribe(t, "custom", "all", nil)
	receipt := tn.Send(t, testnode.Custom("custom",
		`[ { "no" : 1, "v":"2\"\u0001é\\", "who":"ann\"\u0001é\\",  "total":1e3 } ]`))
	tn.Exec(t, "UPDATE postrider_internal.events SET traceparent = 'tp', tracestate = 'ts'")
	letter := tn.DeadLetterAll(t)[0]
	work := func(from uuid.UUID) *queue.Work {
		t.Helper()
		delivery, err := tn.System.Operator.Redeliver(t.Context(), from, operator.Target{}, true)
		require.NoError(t, err)
		require.Equal(t, 1, tn.Refill(t, sub.ID, false, 10))
		w, err := tn.System.Loader.Load(t.Context(), queue.AttemptArgs{Delivery: delivery, Subscription: sub.ID},
			tokenOf(t, tn, delivery))
		require.NoError(t, err)
		w.Release()
		return w
	}
	want := work(letter)
	require.False(t, want.Members[0].EventMissing)
	require.Equal(t, receipt.Events[0].Body, want.Members[0].Event.Body)
	require.Equal(t, 1, tn.Rows(t, "events", ""))

	tn.Exec(t, "DELETE FROM postrider_internal.events")
	got := work(letter)
	require.False(t, got.Members[0].EventMissing)
	require.Equal(t, want.Members[0].Event, got.Members[0].Event, "the very same, with its time and its trace")
	require.Equal(t, want.Members[0].SystemID, got.Members[0].SystemID)
	require.Equal(t, 2, tn.Pending(t, "event_bytes = $1", receipt.Events[0].Size()), "what publishing would have stored")
	work(letter)
	require.Equal(t, 1, tn.Events(t, ""), "once is enough")
}

// TestRedeliverAnOldEvent: retention may be about to remove a day that is older than yesterday, whatever is kept: no
// redelivery leans on it.
func TestRedeliverAnOldEvent(t *testing.T) {
	t.Parallel()
	for ago := 1; ago <= 2; ago++ {
		tn := testnode.Unchecked(t)
		copies := tn.Count(t,
			"SELECT ((now() AT TIME ZONE 'UTC')::date - $1::integer < postrider_internal.first_sure_day())::integer", ago)
		day := tn.Day(t, ago)
		tn.Topic(t, "orders")
		sub := tn.Subscribe(t, "orders", "all", nil)
		tn.Publish(t, "orders", "e", 1)
		tn.MoveEvents(t, day)
		tn.Exec(t, fmt.Sprintf("UPDATE postrider_internal.events SET published_at = published_at - interval '%d days'", ago))
		letter := tn.DeadLetterAll(t)[0]
		require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider_internal.dead_letters WHERE event_day = $1", day))

		// While a transaction that has redelivered it is open, the day is removed, if it may be.
		end := tn.OpenTransaction(t, "SELECT postrider.redeliver($1)", letter)
		detached := make(chan error, 1)
		go func() {
			detached <- tn.System.Maintenance.Retain(context.Background(), query.Retention{DeliveredDays: 1})
		}()
		if ago == 2 {
			testnode.Within(t, "the day is detached", func() bool { return tn.KeptDays(t, "events") == day+" pending" })
		}
		end(true)
		require.NoError(t, <-detached)

		require.Equal(t, copies, tn.Events(t, "day = (now() AT TIME ZONE 'UTC')::date"))
		require.Equal(t, 2-ago, tn.Rows(t, "events", ""), "the view has it while its own day is kept")
		require.Equal(t, 1, tn.Rows(t, "deliveries", "state = 'pending' AND event_id = 'e-0'"))
		tn.Refill(t, sub.ID, false, 10)
		id := int64(tn.Count(t, "SELECT id FROM postrider_internal.deliveries"))
		w, err := tn.System.Loader.Load(t.Context(), queue.AttemptArgs{Delivery: id, Subscription: sub.ID}, tokenOf(t, tn,
			id))
		require.NoError(t, err)
		require.False(t, w.Members[0].EventMissing)
		w.Release()
	}
}

// TestRedeliverTwiceAtOnce: one wins, and one that is rolled back leaves nothing.
func TestRedeliverTwiceAtOnce(t *testing.T) {
	t.Parallel()
	tn, letters := testnode.ManyDeadLetters(t, 2)
	var won atomic.Int64
	testnode.AtOnce(5, func(int) {
		if _, err := tn.System.Operator.Redeliver(t.Context(), letters[0], operator.Target{}, false); err == nil {
			won.Add(1)
		} else {
			require.ErrorIs(t, err, postgres.ErrConflict)
		}
	})
	require.EqualValues(t, 1, won.Load())
	require.Equal(t, 1, tn.Pending(t, ""))

	tn.OpenTransaction(t, "SELECT postrider.redeliver($1)", letters[1])(false)
	require.Equal(t, 1, tn.Pending(t, ""))
	require.Zero(t, tn.Rows(t, "dead_letters", "dead_letter_id = $1 AND redelivered_at IS NOT NULL", letters[1]))
}

// A deletion waits for a redelivery that is not committed, and cancels the deliveries that it then finds.
func TestDeletionSeesRedeliveries(t *testing.T) {
	t.Parallel()
	tn, letters := testnode.ManyDeadLetters(t, 1)
	end := tn.OpenTransaction(t, "SELECT postrider.redeliver($1)", letters[0])
	require.ErrorIs(t, tn.System.Subscriptions.Delete(t.Context(), "orders", "all"), postgres.ErrUnavailable)
	end(true)
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", "all"))
	require.Equal(t, 1, tn.Rows(t, "deliveries", "state = 'canceled' AND redelivered_from = $1", letters[0]))
	require.Zero(t, tn.Pending(t, ""))
}

func TestRedeliverToAPausedSubscriptionWaits(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	letter := tn.DeadLetters(t, "orders", "e", 1)[0]
	tn.Pause(t, "orders", "all")
	tn.Exec(t, "SELECT postrider.redeliver($1)", letter)
	require.Equal(t, 1, tn.Rows(t, "deliveries", "hold = 'paused'"))
	require.Zero(t, tn.Refill(t, sub.ID, false, 10))
	tn.Resume(t, "orders", "all")
	require.Equal(t, 1, tn.Refill(t, sub.ID, false, 10))
}

// While the endpoint rests, a redelivery waits with the rest and may be the probe.
func TestRedeliverDuringAProbation(t *testing.T) {
	t.Parallel()
	tn, letters := testnode.ManyDeadLetters(t, 1)
	tn.Exec(t, `INSERT INTO postrider_internal.probations (probation_key, endpoint_base_url, since, until)
		SELECT endpoint_hash, endpoint_base_url, now(), now() - interval '1 second'
		FROM postrider_internal.event_subscriptions
		ON CONFLICT (probation_key) DO UPDATE SET since = excluded.since, until = excluded.until`)
	tn.Exec(t, "SELECT postrider.redeliver($1)", letters[0])
	require.Equal(t, 1, tn.Rows(t, "deliveries", "hold = 'probation'"))
	key := testnode.Value[[]byte](t, tn, "SELECT probation_key FROM postrider_internal.probations")
	claimed, err := tn.System.Releaser.ClaimProbe(t.Context(), key)
	require.NoError(t, err)
	require.True(t, claimed)
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

func TestRedeliverToABatchingSubscription(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	letters := tn.DeadLetters(t, "orders", "e", 3)
	sub := tn.Subscribe(t, "orders", "all", func(s *catalog.SubscriptionSpec) { s.MaxEventsPerBatch = new(10) })
	for _, letter := range letters {
		tn.Exec(t, "SELECT postrider.redeliver($1)", letter)
	}
	require.Equal(t, 3, tn.Refill(t, sub.ID, true, 10))
	batch := tn.CutOne(t, sub)
	require.Len(t, batch.Members, 3)
	for i, member := range batch.Members {
		require.Equal(t, fmt.Sprintf("e-%d", i), member.Event.ID, "in the order of publishing")
	}
}

// Redeliveries are created in the order of acceptance, whatever the ids of events and dead letters.
func TestRedeliverHasTheOrderOfAcceptance(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	tn.DeadLetters(t, "orders", "e", 8)
	tn.Exec(t, "UPDATE postrider_internal.dead_letters SET event_uuid = gen_random_uuid()")
	tn.Exec(t, `SELECT postrider_internal.redeliver_dead_letters(array_agg(id), NULL, NULL, NULL, NULL, NULL)
		FROM postrider_internal.dead_letters`)
	require.Equal(t, []string{"e-0", "e-1", "e-2", "e-3", "e-4", "e-5", "e-6", "e-7"}, testnode.Value[[]string](t, tn,
		"SELECT array_agg(event_id ORDER BY delivery_id) FROM postrider.deliveries WHERE state = 'pending'"))
}
