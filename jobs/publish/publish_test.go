package publish_test

import (
	"bytes"
	"context"
	"crypto/sha256"
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
	require.Equal(t, 3, tn.Count(t, "SELECT count(*) FROM postrider.events WHERE topic = 'orders' AND matched = 1"))
	require.Equal(t, 3, tn.Count(t,
		"SELECT count(*) FROM postrider.deliveries WHERE subscription = 'all' AND state = 'pending' AND attempts = 0"))
	require.Equal(t, 3, tn.Jobs(t, "state = 'available' AND kind = 'deliver'"))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	require.Equal(t, topic.ID, receipt.Topic.ID)
}

func TestPublishUnmatchedEventIsKept(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.Topic(t, "orders")
	receipt := tn.Publish(t, "orders", "e", 1)
	require.Equal(t, []int{0}, receipt.Matched)
	require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider.events WHERE event_id = 'e-0' AND matched = 0"))
}

func TestPublishFromManyAtOnce(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.Topic(t, "orders")
	tn.Subscribe(t, "orders", "all", nil)
	var group sync.WaitGroup
	for worker := range 20 {
		group.Go(func() {
			for i := range 10 {
				size := 1
				if i == 9 {
					size = 150 // a transaction of its own
				}
				_, err := tn.System.Publisher.Publish(t.Context(), testnode.Publication("orders", fmt.Sprintf("w%d-%d", worker, i),
					size))
				require.NoError(t, err)
			}
		})
	}
	group.Wait()
	require.Equal(t, 20*(9+150), tn.Count(t, "SELECT count(*) FROM postrider.deliveries"))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

func TestPublishBlamesOnlyTheGuiltyRequest(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.Topic(t, "orders")
	tn.Subscribe(t, "orders", "all", nil)
	poison := testnode.Publication("orders", "poison", 2)
	parse := poison.Parse
	poison.Parse = func(topic *catalog.Topic) ([]event.Event, error) {
		events, err := parse(topic)
		events[1].Subject = "nul \x00" // a text column cannot hold it; parsing rejects it before
		return events, err
	}
	var group sync.WaitGroup
	errs := make([]error, 40)
	for i := range errs {
		group.Go(func() {
			if i == 20 {
				_, errs[i] = tn.System.Publisher.Publish(t.Context(), poison)
				return
			}
			_, errs[i] = tn.System.Publisher.Publish(t.Context(), testnode.Publication("orders", fmt.Sprint(i), 1))
		})
	}
	group.Wait()
	for i, err := range errs {
		if i == 20 {
			require.ErrorIs(t, err, postgres.ErrPoison)
			continue
		}
		require.NoError(t, err)
	}
	require.Equal(t, 39, tn.Count(t, "SELECT count(*) FROM postrider.events"))
}

func TestChangeIsSeenByTheNextPublishOnEveryNode(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.Topic(t, "orders")
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
	require.Zero(t, tn.Pending(t, ""),
		"deleting cancels pending deliveries")
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

func TestPublishToTopicMadeOnAnotherNode(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	other := tn.Beside(t, node.Options{Node: "node-2"}).System
	tn.Topic(t, "fresh")
	_, err := other.Publisher.Publish(t.Context(), testnode.Publication("fresh", "e", 1))
	require.NoError(t, err)
	_, err = other.Publisher.Publish(t.Context(), testnode.Publication("never", "e", 1))
	require.ErrorIs(t, err, postgres.ErrNotFound)
}

func TestPublishRacingWithDeletesLeavesNothingPending(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.Topic(t, "orders")
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
	tn := testnode.Unchecked(t)
	tn.Topic(t, "orders")
	tn.Subscribe(t, "orders", "all", nil)
	tx, err := tn.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "UPDATE postrider_internal.topics SET name = 'renamed'; "+
		"UPDATE postrider_internal.event_subscriptions SET deleted_at = now()")
	require.NoError(t, err)

	receipt := tn.Publish(t, "orders", "e", 1)

	require.Equal(t, []int{1}, receipt.Matched)
}

func TestPublishWhileATableIsLockedIsRejectedAndStoresNothing(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.Topic(t, "orders")
	tn.Subscribe(t, "orders", "all", nil)
	tx, err := tn.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE postrider_internal.events")
	require.NoError(t, err)
	_, err = tn.System.Publisher.Publish(t.Context(), testnode.Publication("orders", "e", 1))
	require.ErrorIs(t, err, postgres.ErrUnavailable)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Zero(t, tn.Count(t, "SELECT count(*) FROM postrider.events"))
	tn.Publish(t, "orders", "later", 1)
}

func TestPublishOfAClientThatWentAwayIsTakenOut(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.Topic(t, "orders")
	tx, err := tn.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE postrider_internal.events")
	require.NoError(t, err)
	first := make(chan error, 1)
	go func() { // occupies the committer
		_, err := tn.System.Publisher.Publish(context.Background(), testnode.Publication("orders", "first", 1))
		first <- err
	}()
	testnode.Within(t, "the publish waits", func() bool {
		return tn.Count(t,
			"SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'postrider_internal.events'::regclass") > 0
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = tn.System.Publisher.Publish(ctx, testnode.Publication("orders", "gone", 1))
	require.ErrorIs(t, err, postgres.ErrUnavailable)
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, <-first)
	tn.Publish(t, "orders", "last", 1)
	require.Zero(t, tn.Count(t, "SELECT count(*) FROM postrider.events WHERE event_id = 'gone-0'"))
}

func TestReplacedKeysAreRejectedByTheNextPublishOnEveryNode(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	old := catalog.AccessKeys{Key1: "one", Key2: "two"}
	_, _, err := tn.System.Topics.Put(t.Context(), "orders",
		catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: event.EventGrid, Keys: &old})
	require.NoError(t, err)
	other := tn.Beside(t, node.Options{Node: "node-2"}).System
	with := func(key string) publish.Publication {
		sum := sha256.Sum256([]byte(key))
		p := testnode.Publication("orders", key, 1)
		p.Authorize = func(topic *catalog.Topic) bool {
			return bytes.Equal(topic.Key1Hash, sum[:]) || bytes.Equal(topic.Key2Hash, sum[:])
		}
		return p
	}
	for _, key := range []string{"one", "two"} {
		_, err := other.Publisher.Publish(t.Context(), with(key))
		require.NoError(t, err)
	}
	require.NoError(t, tn.System.Topics.SetKeys(t.Context(), "orders", catalog.AccessKeys{Key1: "three", Key2: "two"}))
	_, err = other.Publisher.Publish(t.Context(), with("one"))
	require.ErrorIs(t, err, publish.ErrUnauthorized,
		"it is checked again in the transaction, by the catalog of that moment")
	for _, key := range []string{"two", "three"} {
		_, err := other.Publisher.Publish(t.Context(), with(key))
		require.NoError(t, err)
	}
	require.ErrorIs(t, tn.System.Topics.SetKeys(t.Context(), "never", old), postgres.ErrNotFound)
}
