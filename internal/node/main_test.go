package node_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testdb"
	"postrider/internal/testnode"
	"postrider/jobs/publish"
	"postrider/policy"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { os.Exit(testdb.Run(m, testnode.Migrate)) }

// bundle is one migrated database with a running store.
type bundle struct {
	url   string
	pool  *pgxpool.Pool
	store *node.System
}

func setup(t *testing.T) *bundle {
	t.Helper()
	url := testdb.New(t)
	b := &bundle{url: url}
	b.store, b.pool = newStore(t, url, "node-1")
	return b
}

var testKey = testnode.Key

// newStore opens a store of its own on a database, as another process would, and runs it until the test ends.
func newStore(t *testing.T, url, name string) (*node.System, *pgxpool.Pool) {
	t.Helper()
	return newStoreWith(t, url, node.Options{Node: name})
}

// smallMemory is a store that holds 1 MiB of bodies, the least there is.
func (b *bundle) smallMemory(t *testing.T) *node.System {
	t.Helper()
	s, _ := newStoreWith(t, b.url, node.Options{Node: "node-small", MaxBodyBytes: 1})
	return s
}

func newStoreWith(t *testing.T, url string, o node.Options) (*node.System, *pgxpool.Pool) {
	t.Helper()
	return openStore(t, url, o, func(*node.System) {})
}

func openStore(t *testing.T, url string, o node.Options, change func(*node.System)) (*node.System, *pgxpool.Pool) {
	t.Helper()
	pool := testdb.Pool(t, url)
	sealer, err := postgres.NewSealer(testKey)
	require.NoError(t, err)
	o.Pool, o.Sealer = pool, sealer
	s, err := node.New(t.Context(), o)
	require.NoError(t, err)
	change(s)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return s, pool
}

func (b *bundle) topic(t *testing.T, name string) *catalog.Topic {
	t.Helper()
	topic, _, err := b.store.Topics.Put(t.Context(), name,
		catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: event.EventGrid})
	require.NoError(t, err)
	return topic
}

func spec() catalog.SubscriptionSpec {
	return catalog.SubscriptionSpec{
		EndpointURL:         "https://example.com/hook?secret=1",
		EndpointKind:        policy.KindWebhook,
		EventDeliverySchema: event.EventGrid, RetryPolicy: catalog.RetryPolicySpec{Policy: policy.DefaultName},
	}
}

func (b *bundle) subscription(
	t *testing.T, topic, name string, change func(*catalog.SubscriptionSpec),
) *catalog.Subscription {
	t.Helper()
	s := spec()
	if change != nil {
		change(&s)
	}
	sub, _, err := b.store.Subscriptions.Put(t.Context(), topic, name, s)
	require.NoError(t, err)
	return sub
}

// publication makes n Event Grid events with ids prefix-0, prefix-1, …
func publication(topic, prefix string, n int) publish.Publication {
	return publish.Publication{Topic: topic, Parse: func(*catalog.Topic) ([]event.Event, error) {
		events := make([]event.Event, n)
		for i := range events {
			id := fmt.Sprintf("%s-%d", prefix, i)
			events[i] = event.Event{
				Schema: event.EventGrid, ID: id, Type: "test", Subject: "subject/" + id,
				Body: fmt.Appendf(nil,
					`{"id":%q,"subject":"subject/%s","eventType":"test","eventTime":"2026-01-01T00:00:00Z","data":{}}`, id, id),
			}
		}
		return events, nil
	}}
}

// bigPublication makes n events whose bodies have the size given.
func bigPublication(topic string, n, bytes int) publish.Publication {
	return publish.Publication{Topic: topic, Parse: func(*catalog.Topic) ([]event.Event, error) {
		events := make([]event.Event, n)
		for i := range events {
			events[i] = event.Event{Schema: event.EventGrid, ID: fmt.Sprint(i), Type: "test", Body: make([]byte, bytes)}
		}
		return events, nil
	}}
}

func (b *bundle) publish(t *testing.T, topic, prefix string, n int) *publish.Receipt {
	t.Helper()
	receipt, err := b.store.Publisher.Publish(t.Context(), publication(topic, prefix, n))
	require.NoError(t, err)
	return receipt
}

// count runs a query that returns one number.
func (b *bundle) count(t *testing.T, query string, args ...any) int {
	t.Helper()
	var n int
	require.NoError(t, b.pool.QueryRow(t.Context(), query, args...).Scan(&n))
	return n
}
