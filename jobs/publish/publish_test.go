package publish_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/filter"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/jobs/publish"

	"github.com/stretchr/testify/require"
)

func TestPublishStoresEventsDeliveriesAndJobs(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	topic := tn.Topic(t, "orders")
	tn.Subscribe(t, "orders", "all", nil)
	tn.Subscribe(t, "orders", "none",
		func(s *catalog.SubscriptionSpec) { s.Filter = filter.Filter{IncludedEventTypes: []string{"other"}} })

	receipt := tn.Publish(t, "orders", "e", 3)

	require.Equal(t, []int{1, 1, 1}, receipt.Matched)
	require.Equal(t, 3, tn.Rows(t, "events", "topic = 'orders' AND matched = 1"))
	require.Equal(t, 3, tn.Rows(t, "deliveries", "subscription = 'all' AND state = 'pending' AND attempts = 0"))
	require.Equal(t, 3, tn.Jobs(t, "state = 'available' AND kind = 'deliver'"))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	require.Equal(t, topic.ID, receipt.Topic.ID)
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", "all"))
	require.Equal(t, []int{0}, tn.Publish(t, "orders", "unmatched", 1).Matched)
	require.Equal(t, 1, tn.Rows(t, "events", "event_id = 'unmatched-0' AND matched = 0"))
}

func TestPublishFromManyClients(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	testnode.AtOnce(20, func(worker int) {
		for i := range 10 {
			size := 1
			if i == 9 {
				size = 150 // a transaction of its own
			}
			tn.Publish(t, "orders", fmt.Sprintf("w%d-%d", worker, i), size)
		}
	})
	require.Equal(t, 20*(9+150), tn.Rows(t, "deliveries", ""))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

// poison is a request that PostgreSQL rejects: a text column cannot hold NUL. Parsing rejects it before.
func poison() publish.Publication {
	return testnode.Of("orders", event.Event{Schema: event.EventGrid, ID: "nul\x00", Type: "test", Body: []byte("{}")})
}

func TestPublishRejectsOnlyTheInvalidRequest(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	testnode.AtOnce(40, func(i int) {
		if i == 20 {
			require.ErrorIs(t, testnode.ErrorOf(tn.System.Publisher.Publish(t.Context(), poison())), postgres.ErrPoison)
			return
		}
		tn.Publish(t, "orders", fmt.Sprint(i), 1)
	})
	require.Equal(t, 39, tn.Rows(t, "events", ""))
}

func TestChangeIsSeenByTheNextPublishOnEveryNode(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	other := tn.Beside(t, node.Options{Node: "node-2"}).System
	for i := range 20 {
		name := fmt.Sprintf("sub-%02d", i)
		tn.Subscribe(t, "orders", name, nil)
		receipt, err := other.Publisher.Publish(t.Context(), testnode.Publication("orders", fmt.Sprintf("after-%d", i), 1))
		require.NoError(t, err)
		require.Equal(t, i+1, receipt.Matched[0], "the other node published without event subscription %s", name)
	}
	for i := range 20 {
		require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", fmt.Sprintf("sub-%02d", i)))
		receipt, err := other.Publisher.Publish(t.Context(), testnode.Publication("orders", fmt.Sprintf("gone-%d", i), 1))
		require.NoError(t, err)
		require.Equal(t, 19-i, receipt.Matched[0])
	}
	require.Zero(t, tn.Pending(t, ""), "deleting cancels pending deliveries")
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

func TestPublishToTopicCreatedOnAnotherNode(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	other := tn.Beside(t, node.Options{Node: "node-2"}).System
	tn.Topic(t, "fresh")
	require.NoError(t, testnode.ErrorOf(other.Publisher.Publish(t.Context(), testnode.Publication("fresh", "e", 1))))
	_, err := other.Publisher.Publish(t.Context(), testnode.Publication("never", "e", 1))
	require.ErrorIs(t, err, postgres.ErrNotFound)
}

func TestPublishDuringDeletesLeavesNothingPending(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	other := tn.Beside(t, node.Options{Node: "node-2"}).System
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if _, err := other.Publisher.Publish(ctx, testnode.Publication("orders", fmt.Sprintf("%d-%d", worker, i),
					1)); err != nil {
					require.True(t, errors.Is(err, postgres.ErrUnavailable) && ctx.Err() != nil, "publish: %v", err)
				}
			}
		})
	}
	for range 30 {
		tn.Subscribe(t, "orders", "brief", nil)
		require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", "brief"))
	}
	cancel()
	group.Wait()
	// A publish that ran while the event subscription was deleted may commit after it: such a delivery has its
	// job, which cancels it.
	require.Zero(t, tn.Count(t, "SELECT count(*) FROM postrider_internal.deliveries d "+
		"JOIN postrider_internal.event_subscriptions s ON s.id = d.subscription_id WHERE s.deleted_at IS NULL"))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

func TestPublishWaitsForNoOpenTransaction(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	tn.OpenTransaction(t, "UPDATE postrider_internal.topics SET name = 'renamed'; "+
		"UPDATE postrider_internal.event_subscriptions SET deleted_at = now()")

	receipt := tn.Publish(t, "orders", "e", 1)

	require.Equal(t, []int{1}, receipt.Matched)
}

func TestPublishWhileATableIsLockedIsRejectedAndStoresNothing(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	end := tn.OpenTransaction(t, "LOCK TABLE postrider_internal.events")
	_, err := tn.System.Publisher.Publish(t.Context(), testnode.Publication("orders", "e", 1))
	require.ErrorIs(t, err, postgres.ErrUnavailable)
	end(false)
	require.Zero(t, tn.Rows(t, "events", ""))
	tn.Publish(t, "orders", "later", 1)
}

func TestPublishOfADisconnectedClientIsRemoved(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	end := tn.OpenTransaction(t, "LOCK TABLE postrider_internal.events")
	first := make(chan error, 1)
	go func() { // occupies the committer
		_, err := tn.System.Publisher.Publish(context.Background(), testnode.Publication("orders", "first", 1))
		first <- err
	}()
	tn.AwaitLock(t, "")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := tn.System.Publisher.Publish(ctx, testnode.Publication("orders", "gone", 1))
	require.ErrorIs(t, err, postgres.ErrUnavailable)
	end(false)
	require.NoError(t, <-first)
	tn.Publish(t, "orders", "last", 1)
	require.Zero(t, tn.Rows(t, "events", "event_id = 'gone-0'"))
}
