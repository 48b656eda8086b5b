package publish_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/jobs/publish"
)

// keyed publishes one event with a key. Like a client, it tries again if another publish has the key for too long.
func keyed(t *testing.T, tn *testnode.Node, s *node.System, topic, key string) *publish.Receipt {
	t.Helper()
	p := testnode.Publication(topic, uuid.NewString(), 1)
	p.IdempotencyKey = key
	for {
		receipt, err := s.Publisher.Publish(t.Context(), p)
		if errors.Is(err, postgres.ErrUnavailable) && t.Context().Err() == nil {
			continue
		}
		require.NoError(t, err)
		return receipt
	}
}

func eventCount(t *testing.T, tn *testnode.Node) int {
	t.Helper()
	return tn.Count(t, "SELECT count(*) FROM postrider.events")
}

func TestRepeatedPublish(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.Topic(t, "others")
	tn.Subscribe(t, "orders", "all", nil)
	require.False(t, keyed(t, tn, tn.System, "orders", "a").Repeated)
	require.True(t, keyed(t, tn, tn.System, "orders", "a").Repeated)
	require.False(t, keyed(t, tn, tn.System, "orders", "b").Repeated)
	require.False(t, keyed(t, tn, tn.System, "others", "a").Repeated, "a key is a topic's own")
	require.Equal(t, 3, eventCount(t, tn))
	require.Equal(t, 2, tn.Rows(t, "deliveries", ""))

	tn.Exec(t, "UPDATE postrider_internal.idempotency_keys SET expires_at = now() - interval '1 second'")
	require.False(t, keyed(t, tn, tn.System, "orders", "a").Repeated, "its window is over")
	require.True(t, keyed(t, tn, tn.System, "orders", "a").Repeated)
	require.NoError(t, tn.System.Maintenance.Clean(t.Context()))
	require.Equal(t, 1, tn.Count(t,
		"SELECT count(*) FROM postrider_internal.idempotency_keys WHERE expires_at > now() + interval '23 hours 50 minutes'"))
}

// TestSameKeyEverywhere: two nodes and SQL publish with the same keys at the same time, while the catalog moves.
func TestSameKeyEverywhere(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	other := tn.Beside(t, node.Options{Node: "node-2"}).System
	const keys = 40
	var group sync.WaitGroup
	for _, s := range []*node.System{tn.System, other} {
		for k := range keys {
			for range 2 {
				group.Go(func() { keyed(t, tn, s, "orders", fmt.Sprint(k)) })
			}
		}
	}
	group.Go(func() {
		for k := range keys {
			tn.Exec(t, `SELECT postrider.publish('orders', '{"eventType": "A", "subject": ""}', idempotency_key => $1)`,
				fmt.Sprint(k))
		}
	})
	group.Go(func() {
		for i := range 10 {
			tn.Subscribe(t, "orders", fmt.Sprintf("sub-%d", i), nil)
		}
	})
	group.Wait()
	require.Equal(t, keys, eventCount(t, tn))
	require.Equal(t, keys, tn.Count(t, "SELECT count(*) FROM postrider_internal.idempotency_keys k "+
		"JOIN postrider_internal.events e ON e.id = k.event_uuids[1]"))
}

// TestOutdatedCatalogKeepsNoKey: a change of the catalog during a publish repeats it, with its key.
func TestOutdatedCatalogKeepsNoKey(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	change := sync.OnceFunc(func() { tn.Subscribe(t, "orders", "all", nil) })
	other := tn.Beside(t, node.Options{Node: "node-2", Failpoint: func(point string) {
		if point == publish.PointPublishInside {
			change()
		}
	}}).System
	require.False(t, keyed(t, tn, other, "orders", "a").Repeated)
	require.Equal(t, 1, eventCount(t, tn))
	require.Equal(t, 1, tn.Rows(t, "deliveries", ""))
}

// TestKeyIsKeptWithItsEvents: an event that PostgreSQL rejects leaves no key.
func TestKeyIsKeptWithItsEvents(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.Exec(t, "ALTER TABLE postrider_internal.events ADD CONSTRAINT poison CHECK (event_type <> 'test')")
	p := testnode.Publication("orders", "e", 1)
	p.IdempotencyKey = "a"
	require.ErrorIs(t, testnode.ErrorOf(tn.System.Publisher.Publish(t.Context(), p)), postgres.ErrPoison)
	require.Zero(t, tn.Count(t, "SELECT count(*) FROM postrider_internal.idempotency_keys"))
	tn.Exec(t, "ALTER TABLE postrider_internal.events DROP CONSTRAINT poison")
	require.False(t, keyed(t, tn, tn.System, "orders", "a").Repeated)
}

// TestOpenTransactionHoldsItsKeyAlone: a transaction that stays open delays its own key alone.
func TestOpenTransactionHoldsItsKeyAlone(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tx := tn.Begin(t)
	var id uuid.UUID
	const publish = `SELECT postrider.publish('orders', '{"eventType": "A", "subject": ""}', idempotency_key => 'held')`
	require.NoError(t, tx.QueryRow(t.Context(), publish).Scan(&id))

	var group sync.WaitGroup
	held := make(chan error, 1)
	group.Go(func() {
		p := testnode.Publication("orders", "e", 1)
		p.IdempotencyKey = "held"
		_, err := tn.System.Publisher.Publish(t.Context(), p)
		held <- err
	})
	for k := range 50 {
		group.Go(func() { keyed(t, tn, tn.System, "orders", fmt.Sprint(k)) })
	}
	group.Go(func() { tn.Publish(t, "orders", "plain", 1) })
	group.Wait()
	require.ErrorIs(t, <-held, postgres.ErrUnavailable)
	require.Equal(t, 51, eventCount(t, tn))

	require.NoError(t, tx.Commit(t.Context()))
	require.True(t, keyed(t, tn, tn.System, "orders", "held").Repeated)
	again := testnode.Value[uuid.UUID](t, tn, publish)
	require.Equal(t, id, again, "a repeat returns the first response")
	require.Equal(t, 52, eventCount(t, tn))
}

// TestStopWhileAKeyIsHeld: a publish that waits for a key while its node stops gets its response.
func TestStopWhileAKeyIsHeld(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	end := tn.OpenTransaction(t,
		`SELECT postrider.publish('orders', '{"eventType": "A", "subject": ""}', idempotency_key => 'held')`)
	defer end(false)
	p := publish.NewPublisher(tn.System.Publisher.PublisherParts, tn.System.Publisher.PublisherOptions)
	ctx, stop := context.WithCancel(t.Context())
	stopped, held := make(chan struct{}), make(chan error, 1)
	go func() { defer close(stopped); p.Run(ctx) }()
	publication := testnode.Publication("orders", "e", 1)
	publication.IdempotencyKey = "held"
	go func() { held <- testnode.ErrorOf(p.Publish(t.Context(), publication)) }()
	testnode.Within(t, "it waits", func() bool { return p.PublishCounters().Waiting == 1 })
	other := testnode.Publication("orders", "f", 1)
	other.IdempotencyKey = "free"
	require.NoError(t, testnode.ErrorOf(p.Publish(t.Context(), other)))
	stop()
	<-stopped
	require.ErrorContains(t, <-held, "another publish of the same idempotency key")
}

// TestRolledBackKey: a key whose transaction was rolled back is free.
func TestRolledBackKey(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	const publish = `SELECT postrider.publish_batch('orders',
		    '[{"eventType": "A", "subject": ""}, {"eventType": "B", "subject": ""}]', idempotency_key => 'a')`
	tn.OpenTransaction(t, publish)(false)
	first := testnode.Value[[]uuid.UUID](t, tn, publish)
	require.Len(t, first, 2)
	require.Equal(t, first, testnode.Value[[]uuid.UUID](t, tn, publish))
	require.Equal(t, 2, eventCount(t, tn))
	for _, key := range []string{"''", "repeat('x', 256)"} {
		_, err := tn.Pool.Exec(t.Context(),
			`SELECT postrider.publish('orders', '{"eventType": "A", "subject": ""}', idempotency_key => `+key+`)`)
		require.ErrorContains(t, err, "idempotency_key must be 1 to 255 bytes long")
	}
}

// TestKeyedRoute: a publish with very many deliveries keeps its key with its route.
func TestKeyedRoute(t *testing.T) {
	t.Parallel()
	tn := routed(t, 6)
	for range 2 {
		p := testnode.Publication("orders", "e", 5)
		p.IdempotencyKey = "a"
		tn.Send(t, p)
	}
	tn.RouteAll(t, tn.System)
	requireRoutedOnce(t, tn)
	require.Equal(t, 5, eventCount(t, tn))
}
