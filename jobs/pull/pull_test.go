package pull_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/node"
	"postrider/internal/testnode"
	"postrider/jobs/publish"
	"postrider/jobs/pull"
)

// pulled is a node with a topic of CloudEvents whose consumer pulls each of n events up to count times.
func pulled(t *testing.T, count, n int) (*testnode.Node, *catalog.Subscription) {
	t.Helper()
	tn := testnode.Unchecked(t)
	tn.PutTopic(t, "orders", catalog.TopicSpec{Kind: catalog.TopicNamespace, InputSchema: event.CloudEvents})
	sub := tn.Subscribe(t, "orders", "pull", queueOf(count))
	publishCloudEvents(t, tn, "e", n)
	return tn, sub
}

// queueOf is the configuration of pull delivery with a number of receives.
func queueOf(count int) func(*catalog.SubscriptionSpec) {
	return func(s *catalog.SubscriptionSpec) {
		*s = catalog.SubscriptionSpec{
			DeliveryConfiguration: &catalog.DeliveryConfiguration{DeliveryMode: catalog.ModeQueue},
			EventDeliverySchema:   event.CloudEvents,
			RetryPolicy:           catalog.RetryPolicySpec{Policy: "namespace-2023", MaxDeliveryAttempts: &count},
		}
	}
}

func publishCloudEvents(t *testing.T, tn *testnode.Node, prefix string, n int) {
	t.Helper()
	events := make([]event.Event, n)
	for i := range events {
		id := fmt.Sprintf("%s-%d", prefix, i)
		events[i] = event.Event{
			Schema: event.CloudEvents, ID: id, Type: "test", Source: "/s",
			Body: fmt.Appendf(nil, `{"specversion":"1.0","id":%q, "source":"/s","type":"test","x":1}`, id),
		}
	}
	tn.Send(t, testnode.Of("orders", events...))
}

// receive returns at once what is available.
func receive(t *testing.T, tn *testnode.Node, sub *catalog.Subscription, most int) []pull.Delivery {
	t.Helper()
	received, err := tn.System.Receiver.Receive(t.Context(), sub, most, 20*time.Millisecond, "test")
	require.NoError(t, err)
	return received
}

func settle(
	t *testing.T, tn *testnode.Node, sub *catalog.Subscription, how pull.Settlement, delay time.Duration,
	received ...pull.Delivery,
) (n int) {
	t.Helper()
	tokens := make([]pull.LockToken, len(received))
	for i := range received {
		tokens[i] = received[i].Token
	}
	ok, err := tn.System.Receiver.Settle(t.Context(), sub, how, tokens, delay)
	require.NoError(t, err)
	for _, ended := range ok {
		if ended {
			n++
		}
	}
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	return n
}

// endLocks lets the time of all locks end.
func endLocks(t *testing.T, tn *testnode.Node) {
	t.Helper()
	tn.Exec(t, "UPDATE postrider_internal.river_job SET scheduled_at = now() - interval '1 second' WHERE kind = 'lock'")
	require.NoError(t, tn.System.Receiver.ExpireLocks(t.Context()))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

func TestReceiveAndAcknowledge(t *testing.T) {
	t.Parallel()
	tn, sub := pulled(t, 10, 5)
	require.Equal(t, 5, tn.Rows(t, "deliveries", "waits_for = 'consumer'"))
	require.Zero(t, tn.Jobs(t, ""))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))

	first := receive(t, tn, sub, 3)
	require.Len(t, first, 3)
	require.Equal(t, "e-0", first[0].EventID)
	require.Equal(t, 1, first[0].Count)
	require.Equal(t, `{"specversion":"1.0","id":"e-0", "source":"/s","type":"test","x":1}`, string(first[0].Event))
	require.Equal(t, 3, tn.Rows(t, "deliveries", "waits_for = 'lock'"))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	require.Len(t, receive(t, tn, sub, 3), 2)
	require.Empty(t, receive(t, tn, sub, 3))

	require.Equal(t, 3, settle(t, tn, sub, pull.Acknowledge, 0, first...))
	require.Equal(t, 0, settle(t, tn, sub, pull.Acknowledge, 0, first...), "each token counts once")
	require.Equal(t, 3, tn.Rows(t, "deliveries", "state = 'delivered' AND attempts = 1"))
	require.Equal(t, 3, tn.Rows(t, "delivery_attempts", "outcome = 'Acknowledged' AND number = 1"))
}

func TestReleaseExpireReject(t *testing.T) {
	t.Parallel()
	tn, sub := pulled(t, 3, 1)

	first := receive(t, tn, sub, 1)
	require.NoError(t, tn.System.Receiver.Return(sub, first))
	again := receive(t, tn, sub, 1)
	require.Equal(t, 1, again[0].Count, "a receive that did not reach its consumer does not count")
	require.Equal(t, 0, settle(t, tn, sub, pull.Acknowledge, 0, first...), "a new receive has a new token")

	require.Equal(t, 1, settle(t, tn, sub, pull.Release, time.Hour, again...))
	require.Empty(t, receive(t, tn, sub, 1), "invisible for an hour")
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET next_attempt_at = now()")
	again = receive(t, tn, sub, 1)
	require.Equal(t, 2, again[0].Count)
	endLocks(t, tn)
	require.Equal(t, 0, settle(t, tn, sub, pull.Acknowledge, 0, again...), "its time has ended")

	again = receive(t, tn, sub, 1)
	require.Equal(t, 3, again[0].Count)
	require.Equal(t, 1, settle(t, tn, sub, pull.Release, 0, again...), "a release after the last delivery succeeds")
	require.Empty(t, receive(t, tn, sub, 1))
	require.Equal(t, 1, tn.Rows(t, "dead_letters",
		"reason = 'MaxDeliveryAttemptsExceeded' AND attempts = 3 AND last_outcome = 'Released'"))

	publishCloudEvents(t, tn, "rejected", 1)
	require.Equal(t, 1, settle(t, tn, sub, pull.Reject, 0, receive(t, tn, sub, 1)...))
	require.Equal(t, 1, tn.Rows(t, "dead_letters", "reason = 'RejectedByConsumer'"))
	require.Equal(t, 4, tn.Rows(t, "delivery_attempts", ""))
}

func TestRenewLocks(t *testing.T) {
	t.Parallel()
	tn, sub := pulled(t, 10, 2)
	received := receive(t, tn, sub, 2)
	tn.Exec(t, "UPDATE postrider_internal.river_job SET scheduled_at = now() + interval '1 second'")
	tokens := []pull.LockToken{received[0].Token}
	ok, err := tn.System.Receiver.Renew(t.Context(), sub, tokens)
	require.NoError(t, err)
	require.Equal(t, []bool{true}, ok)
	require.Equal(t, 1, tn.Jobs(t, "scheduled_at > now() + interval '50 seconds'"))
	require.Equal(t, 2, settle(t, tn, sub, pull.Acknowledge, 0, received...), "the token stays")

	publishCloudEvents(t, tn, "old", 1)
	old := receive(t, tn, sub, 1)
	tn.Exec(t, `UPDATE postrider_internal.river_job
		SET args = jsonb_set(args, '{f}', to_jsonb(extract(epoch FROM now() - interval '61 minutes')))`)
	ok, err = tn.System.Receiver.Renew(t.Context(), sub, []pull.LockToken{old[0].Token})
	require.NoError(t, err)
	require.Equal(t, []bool{false}, ok)
}

// TestLockWhoseTimeHasEnded: a lock settles and renews nothing from its end on, also before a node has ended it.
func TestLockWhoseTimeHasEnded(t *testing.T) {
	t.Parallel()
	tn, sub := pulled(t, 10, 1)
	received := receive(t, tn, sub, 1)
	tn.Exec(t, "UPDATE postrider_internal.river_job SET scheduled_at = now() - interval '1 second'")
	for _, how := range []pull.Settlement{pull.Acknowledge, pull.Release, pull.Reject} {
		require.Equal(t, 0, settle(t, tn, sub, how, 0, received...), how)
	}
	ok, err := tn.System.Receiver.Renew(t.Context(), sub, []pull.LockToken{received[0].Token})
	require.NoError(t, err)
	require.Equal(t, []bool{false}, ok)
	require.Equal(t, 1, tn.Jobs(t, "kind = 'lock'"))
	require.Equal(t, 1, tn.Pending(t, "attempts = 0"))
}

func TestAvailableDeliveriesExpire(t *testing.T) {
	t.Parallel()
	tn, _ := pulled(t, 10, 2)
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = now() - interval '30 days'")
	require.NoError(t, tn.System.Receiver.Tend(t.Context()))
	require.Equal(t, 2, tn.Rows(t, "dead_letters", "reason = 'TimeToLiveExceeded'"))
}

// A receiver waits without a connection, and gets what is published, released or resumed meanwhile, on any node.
func TestReceiveWaits(t *testing.T) {
	t.Parallel()
	tn, sub := pulled(t, 10, 0)
	received := make(chan []pull.Delivery)
	wait := func(ctx context.Context, most int) {
		got, err := tn.System.Receiver.Receive(ctx, sub, most, time.Minute, "test")
		if err != nil {
			t.Error(err)
		}
		received <- got
	}
	waiting := func(n int) func() bool { return func() bool { return tn.System.Receiver.Waiting() == n } }
	ctx, cancel := context.WithCancel(t.Context())
	go wait(ctx, 1)
	go wait(t.Context(), 1)
	go wait(t.Context(), 1)
	testnode.Within(t, "three consumers wait", waiting(3))
	cancel()
	require.Empty(t, <-received)
	publishCloudEvents(t, tn, "e", 2)
	require.Len(t, <-received, 1)
	second := <-received
	require.Len(t, second, 1)

	go wait(t.Context(), 10)
	testnode.Within(t, "a consumer waits", waiting(1))
	settle(t, tn, sub, pull.Release, 0, second...)
	require.Equal(t, 2, (<-received)[0].Count)

	tn.Pause(t, "orders", "pull")
	publishCloudEvents(t, tn, "held", 3)
	require.Equal(t, 3, tn.Rows(t, "deliveries", "hold = 'paused'"))
	require.Empty(t, receive(t, tn, sub, 3))
	tn.Resume(t, "orders", "pull")
	go wait(t.Context(), 3)
	testnode.Within(t, "a consumer waits", waiting(1))
	require.NoError(t, tn.System.Releaser.MakeAvailable(t.Context(), sub.ID, nil))
	require.Len(t, <-received, 3)

	go wait(t.Context(), 1)
	testnode.Within(t, "a consumer waits", waiting(1))
	tn.System.Receiver.Stop()
	require.Empty(t, <-received)
}

// Consumers acknowledge while the times of their locks end: each lock ends once, by one of both.
func TestAcknowledgeAndExpiryRace(t *testing.T) {
	t.Parallel()
	const events = 300
	tn, sub := pulled(t, 10, events)
	other := tn.Beside(t, node.Options{Node: "node-2"}).System
	var consumers sync.WaitGroup
	acknowledged := make([]int, 4)
	for i := range acknowledged {
		consumers.Go(func() {
			for tn.Pending(t, "") > 0 {
				got, err := tn.System.Receiver.Receive(t.Context(), sub, 20, 50*time.Millisecond, "test")
				if err != nil {
					t.Error(err)
					return
				}
				for _, d := range got {
					ok, err := tn.System.Receiver.Settle(t.Context(), sub, pull.Acknowledge, []pull.LockToken{d.Token}, 0)
					if err != nil {
						t.Error(err)
						return
					}
					if ok[0] {
						acknowledged[i]++
					}
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() { consumers.Wait(); close(ended) }()
	for done := false; !done; {
		select {
		case <-ended:
			done = true
		default:
			tn.Exec(t, "UPDATE postrider_internal.river_job SET scheduled_at = now() WHERE kind = 'lock' AND id % 10 = 0")
			require.NoError(t, other.Receiver.ExpireLocks(t.Context()))
		}
	}
	total := 0
	for _, n := range acknowledged {
		total += n
	}
	lettered := tn.Count(t, "SELECT count(*) FROM postrider.dead_letters")
	require.Equal(t, events, total+lettered)
	require.Equal(t, total, tn.Rows(t, "deliveries", "state = 'delivered'"))
	require.Positive(t, tn.Rows(t, "delivery_attempts", "outcome = 'Expired'"))
}

// A change between push and queue keeps pending deliveries: single ones, batches, and those on hold.
func TestDeliveryModeChanges(t *testing.T) {
	t.Parallel()
	tn, sub := pulled(t, 10, 3)
	locked := receive(t, tn, sub, 1)
	push := func(limit *endpointconf.DeliveryRate) {
		tn.Subscribe(t, "orders", "pull", func(s *catalog.SubscriptionSpec) {
			s.EventDeliverySchema, s.RetryPolicy.Policy, s.MaxEventsPerBatch = event.CloudEvents, "namespace-2023", new(10)
			s.DeliveryRate = limit
		})
	}
	push(&endpointconf.DeliveryRate{Limit: 1})
	require.Equal(t, 1, settle(t, tn, sub, pull.Acknowledge, 0, locked...), "a consumer may end what it has locked")
	require.NoError(t, tn.System.Receiver.Tend(t.Context()))
	require.Equal(t, 2, tn.Rows(t, "deliveries", "hold = 'rate_limited'"))
	push(nil)
	tn.Refill(t, sub.ID, false, 10)
	require.Equal(t, 2, tn.Jobs(t, "kind = 'deliver'"))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	publishCloudEvents(t, tn, "batched", 2)
	require.Equal(t, 2, tn.Rows(t, "deliveries", "waits_for = 'batch'"))
}

// Receivers of one topic take at most half of a node's waiting places.
func TestReceiversOfOneTopicAreBounded(t *testing.T) {
	t.Parallel()
	tn, sub := pulled(t, 10, 0)
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for range 2500 {
		waiting.Go(func() { _, _ = tn.System.Receiver.Receive(ctx, sub, 1, time.Minute, "test") })
	}
	testnode.Within(t, `tn.System.Receiver.Waiting() == 2500`, func() bool { return tn.System.Receiver.Waiting() == 2500 })
	_, err := tn.System.Receiver.Receive(ctx, sub, 1, 0, "test")
	require.ErrorIs(t, err, pull.ErrTooManyReceiversOfTopic)
	tn.PutTopic(t, "others", catalog.TopicSpec{Kind: catalog.TopicNamespace, InputSchema: event.CloudEvents})
	other := tn.Subscribe(t, "others", "pull", queueOf(10))
	require.NoError(t, testnode.ErrorOf(tn.System.Receiver.Receive(ctx, other, 1, 0, "test")))
	cancel()
	waiting.Wait()
	require.NoError(t, testnode.ErrorOf(tn.System.Receiver.Receive(t.Context(), sub, 1, 0, "test")))
}

// An event of a topic with another input schema, which was redelivered, is the CloudEvent that an endpoint would get.
func TestReceiveConvertedEvents(t *testing.T) {
	t.Parallel()
	tn, sub := pulled(t, 10, 0)
	tn.CustomTopic(t, "custom")
	tn.Topic(t, "grid")
	relayed := event.Event{
		Schema: event.EventGrid, ID: "relayed", Type: "test", Subject: "s", Source: "/of/another/topic",
		Body: []byte(`{"id":"relayed","eventType":"test","subject":"s","eventTime":"2026-01-02T03:04:05Z","data":{}}`),
	}
	var sent []event.Event
	for topic, publication := range map[string]publish.Publication{
		"custom": testnode.Custom("custom", `[{"no":"1","kind":"k","who":"w","v":"2.0"},{"no":"2"}]`),
		"grid":   testnode.Of("grid", relayed),
	} {
		tn.Subscribe(t, topic, "push", nil)
		sent = append(sent, tn.Send(t, publication).Events...)
	}
	tn.Exec(t, "SELECT postrider.dead_letter_now(delivery_id) FROM postrider.deliveries")
	tn.Exec(t, "SELECT postrider.redeliver(dead_letter_id, 'pull', 'orders') FROM postrider.dead_letters")
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET hold = NULL, pulled = true")
	want, got := map[string]string{}, map[string]string{}
	for i := range sent {
		converted, err := event.AppendDelivery(nil, &sent[i], "orders", event.CloudEvents)
		require.NoError(t, err)
		want[sent[i].ID] = string(converted)
	}
	for _, d := range receive(t, tn, sub, 10) {
		got[d.EventID] = string(d.Event)
	}
	require.Equal(t, want, got)
}
