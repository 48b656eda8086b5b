package testnode

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testdb"
	"postrider/jobs/publish"
)

// OpenTransaction runs a statement in a transaction that stays open until the returned function ends it.
func (tn *Node) OpenTransaction(t testing.TB, statement string, args ...any) (end func(commit bool)) {
	t.Helper()
	tx := tn.Begin(t)
	_, err := tx.Exec(t.Context(), statement, args...)
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SET LOCAL idle_in_transaction_session_timeout = 0") // functions set it, too
	require.NoError(t, err)
	return func(commit bool) {
		if commit {
			require.NoError(t, tx.Commit(t.Context()))
			return
		}
		require.NoError(t, tx.Rollback(t.Context()))
	}
}

// CustomTopic makes a topic of custom events, with every member of the envelope mapped but the time.
func (tn *Node) CustomTopic(t testing.TB, name string) *catalog.Topic {
	t.Helper()
	var m event.Mapping
	require.NoError(t,
		json.Unmarshal(
			[]byte(`{"inputSchemaMappingType":"Json","properties":{"id":{"sourceField":"no"},"dataVersion":{"sourceField":"v"},
		"eventType":{"sourceField":"kind","defaultValue":"test"},"subject":{"sourceField":"who","defaultValue":"s"}}}`), &m))
	topic, _, err := tn.System.Topics.Put(t.Context(), name,
		catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: event.Custom, InputSchemaMapping: &m})
	require.NoError(t, err)
	return topic
}

// Custom publishes objects of the publisher's own.
func Custom(topic, body string) publish.Publication {
	return publish.Publication{Topic: topic, Parse: func(topic *catalog.Topic) ([]event.Event, error) {
		in := event.Input{
			Schema: topic.InputSchema, Topic: topic.Name, Mapping: topic.InputSchemaMapping, NewID: uuid.NewString,
			Now: time.Now(),
		}
		return in.Parse("application/json", []byte(body))
	}}
}

// RejectedBy returns the error of a statement.
func (tn *Node) RejectedBy(t testing.TB, query string, args ...any) string {
	t.Helper()
	_, err := tn.Pool.Exec(t.Context(), query, args...)
	require.Error(t, err)
	return err.Error()
}

// Filtered gives an event subscription a filter as it is written in a request.
func Filtered(t testing.TB, text string) func(*catalog.SubscriptionSpec) {
	t.Helper()
	return func(s *catalog.SubscriptionSpec) { require.NoError(t, json.Unmarshal([]byte(text), &s.Filter)) }
}

// Leasing is a database with parts of a node whose pool has one connection.
func Leasing(
	t testing.TB, open func(ctx context.Context, url string, maxConns int) (*pgxpool.Pool, error),
) (tn *Node, s *node.System, pool *pgxpool.Pool, stop func()) {
	t.Helper()
	tn = Open(t, testdb.Clone(t), node.Options{Node: "node-1"}) // in a shared one, older connections would be counted
	pool, err := open(t.Context(), tn.URL, 1)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	sealer, err := postgres.NewSealer(Key)
	require.NoError(t, err)
	s, err = node.New(t.Context(), node.Options{Pool: pool, Sealer: sealer, Node: "lone"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return tn, s, pool, stop
}

// BigPublication makes n events whose bodies have the size given.
func BigPublication(topic string, n, bytes int) publish.Publication {
	events := make([]event.Event, n)
	for i := range events {
		events[i] = event.Event{Schema: event.EventGrid, ID: fmt.Sprint(i), Type: "test", Body: make([]byte, bytes)}
	}
	return Of(topic, events...)
}

// Orders is Unchecked with a topic and its event subscription "all".
func Orders(t testing.TB) (*Node, *catalog.Subscription) {
	t.Helper()
	tn := Unchecked(t)
	tn.Topic(t, "orders")
	return tn, tn.Subscribe(t, "orders", "all", nil)
}

// Rest puts an event subscription's endpoint in probation.
func (tn *Node) Rest(t testing.TB, name string) {
	t.Helper()
	tn.Exec(t, `INSERT INTO postrider_internal.probations (probation_key, endpoint_base_url, since, until, cause)
		SELECT (postrider_internal.probation_keys(p.settings #>> '{probation,scope}', s.endpoint_hash, s.id))[1],
		       s.endpoint_base_url, now(),
		       now() + interval '1 hour', 'Busy'
		  FROM postrider_internal.event_subscriptions s JOIN postrider_internal.retry_policies p ON p.name = s.retry_policy
		  WHERE s.name = $1`, name)
}

// CopySubscription inserts n copies of an event subscription; changed is the SQL of the changes of copy i, from 1.
func (tn *Node) CopySubscription(t testing.TB, id int64, changed string, n int) {
	t.Helper()
	stored := tn.Text(t, `SELECT string_agg(quote_ident(column_name), ', ') FROM information_schema.columns
		WHERE table_schema = 'postrider_internal' AND table_name = 'event_subscriptions' AND is_generated = 'NEVER'`)
	tn.Exec(t, fmt.Sprintf(`INSERT INTO postrider_internal.event_subscriptions (%[1]s)
		SELECT %[1]s FROM (SELECT (jsonb_populate_record(s, %[2]s)).*
		    FROM postrider_internal.event_subscriptions s, generate_series(1, $2) i WHERE s.id = $1) copies`,
		stored, changed), id, n)
}

// Pending is a node with n deliveries that wait for their first attempt.
func Pending(t testing.TB, n int) *Node {
	t.Helper()
	tn, _ := Orders(t)
	tn.Publish(t, "orders", "e", n)
	return tn
}

// WithTopic is Unchecked with the topic "orders".
func WithTopic(t testing.TB) *Node {
	t.Helper()
	tn := Unchecked(t)
	tn.Topic(t, "orders")
	return tn
}

// Begin begins a transaction, which is rolled back when the test ends.
func (tn *Node) Begin(t testing.TB) pgx.Tx {
	t.Helper()
	tx, err := tn.Pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // the test's context is over by then
	return tx
}

// AwaitLock waits until a statement that contains the text waits for a lock.
func (tn *Node) AwaitLock(t testing.TB, text string) {
	t.Helper()
	Within(t, text+" waits for a lock", func() bool {
		return tn.Count(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND wait_event_type = 'Lock' AND strpos(query, $1) > 0`, text) > 0
	})
}

// PutTopic creates or replaces a topic.
func (tn *Node) PutTopic(t testing.TB, name string, spec catalog.TopicSpec) {
	t.Helper()
	_, _, err := tn.System.Topics.Put(t.Context(), name, spec)
	require.NoError(t, err)
}

// CloudEvents is a topic's configuration.
var CloudEvents = catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: event.CloudEvents}
