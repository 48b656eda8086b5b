// Package testnode gives tests a node on a database of their own, with what they ask of its tables. Tests with engines
// end with the invariants of deliveries, see RequireInvariants.
package testnode

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testdb"
	"postrider/jobs"
	"postrider/jobs/publish"
	"postrider/migrations"
	"postrider/policy"
)

// Timeout is how long a test waits for an expected event: a safety net, not a bound on its time.
const Timeout = time.Minute

// manyAttempts is more than any test leaves unread.
const manyAttempts = 10_000

// partitionsAhead is the number of days after today that have partitions in tests. A node has a week of them, with
// which PostgreSQL takes twice as long to plan many statements.
const partitionsAhead = 1

// Key seals the secrets in databases of tests.
var Key = []byte("0123456789abcdef0123456789abcdef")

// Loopback is what engines and servers of tests may call.
var Loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// templateForm is to be raised if the Go code of Migrate, or what it calls, creates something else.
const templateForm = 1

// Template is a migrated database with partitions: creating them takes half of the time to set up a test. It depends on
// the migrations, on River's, and on the day.
func Template() testdb.Template {
	hash := sha256.New()
	for _, pattern := range []string{"*.sql", "sql/*.sql"} {
		names, _ := fs.Glob(migrations.Parts, pattern) // the patterns are valid
		for _, name := range names {
			text, err := fs.ReadFile(migrations.Parts, name)
			if err != nil {
				panic(err)
			}
			fmt.Fprintln(hash, name, len(text), string(text))
		}
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range build.Deps {
			if strings.Contains(module.Path, "/riverqueue/") || strings.Contains(module.Path, "/goose/") {
				fmt.Fprintln(hash, module.Path, module.Version)
			}
		}
	}
	day := time.Now().UTC().Format(time.DateOnly)
	return testdb.Template{Fill: Migrate, Version: fmt.Sprintf("%d %s %d %d %x", templateForm, day, partitionsAhead,
		migrations.RiverVersion, hash.Sum(nil))}
}

// Migrate fills a database as Template does.
func Migrate(ctx context.Context, url string) error {
	pool, err := postgres.OpenPool(ctx, url, 0)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := migrations.Up(ctx, pool, io.Discard); err != nil {
		return err
	}
	sealer, err := postgres.NewSealer(Key)
	if err != nil {
		return err
	}
	s, err := node.New(ctx, node.Options{Pool: pool, Sealer: sealer, Node: "template", PartitionsAhead: partitionsAhead})
	if err != nil {
		return err
	}
	return s.Maintenance.EnsurePartitions(ctx)
}

// Node is one node's parts, on a migrated database.
type Node struct {
	URL      string
	Pool     *pgxpool.Pool
	System   *node.System
	Attempts chan jobs.AttemptReport // recorded attempts of the engines of all nodes of the test

	workers int // of nodes beside it, if their options have none
}

// New returns a node for tests with engines, on a database that no other test uses at the same time. It runs until the
// test ends; then the invariants are required.
func New(t testing.TB) *Node {
	t.Helper()
	url := testdb.New(t)
	var tn *Node
	t.Cleanup(func() { // the first cleanup runs last: after engines have stopped
		if tn != nil {
			tn.RequireInvariants(t)
		}
	})
	tn = Open(t, url, node.Options{Node: "node-1", MaxWorkers: 100})
	return tn
}

// Unchecked is New for tests of statements, which make up rows that no engine leaves: the invariants are not required.
func Unchecked(t testing.TB) *Node {
	t.Helper()
	return Open(t, testdb.New(t), node.Options{Node: "node-1"})
}

// Open returns a node on the database at url, which runs until the test ends. Pool, Sealer and Logger have defaults.
func Open(t testing.TB, url string, o node.Options) *Node {
	t.Helper()
	return open(t, url, o, nil)
}

// Beside opens another node on the same database, as another process does. Both report attempts to the same channel.
func (tn *Node) Beside(t testing.TB, o node.Options) *Node {
	t.Helper()
	return tn.Prepared(t, o, nil)
}

// Prepared is Beside with a change of the parts before they run.
func (tn *Node) Prepared(t testing.TB, o node.Options, change func(*node.System)) *Node {
	t.Helper()
	if o.MaxWorkers == 0 {
		o.MaxWorkers = tn.workers
	}
	other := open(t, tn.URL, o, change)
	other.Attempts = tn.Attempts
	return other
}

func open(t testing.TB, url string, o node.Options, change func(*node.System)) *Node {
	t.Helper()
	sealer, err := postgres.NewSealer(Key)
	require.NoError(t, err)
	o.Sealer = sealer
	o.PartitionsAhead = cmp.Or(o.PartitionsAhead, partitionsAhead)
	if o.Pool == nil {
		o.Pool = testdb.Pool(t, url)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := node.New(t.Context(), o)
	require.NoError(t, err)
	if change != nil {
		change(s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return &Node{
		URL: url, Pool: o.Pool, System: s, Attempts: make(chan jobs.AttemptReport, manyAttempts), workers: o.MaxWorkers,
	}
}

// Engine returns an engine that may call loopback and adds no jitter, without starting it. A change may be nil.
func (tn *Node) Engine(t testing.TB, change ...func(*jobs.Options)) *jobs.Engine {
	t.Helper()
	o := jobs.Options{
		Logger: slog.New(slog.DiscardHandler), StopTimeout: time.Second, AllowCIDR: Loopback,
		Jitter:    func() float64 { return 0 },
		OnAttempt: func(r jobs.AttemptReport) { tn.Attempts <- r },
	}
	for _, f := range change {
		if f != nil {
			f(&o)
		}
	}
	e, err := jobs.New(tn.System.Parts, o)
	require.NoError(t, err)
	return e
}

// Start runs an engine until the test ends.
func (tn *Node) Start(t testing.TB, change ...func(*jobs.Options)) *jobs.Engine {
	t.Helper()
	e := tn.Engine(t, change...)
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() { RequireStops(t, e) })
	return e
}

// RequireStops stops an engine.
func RequireStops(t testing.TB, e *jobs.Engine) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	require.NoError(t, e.Stop(ctx))
}

// Attempt waits for the next recorded attempt.
func (tn *Node) Attempt(t testing.TB) jobs.AttemptReport {
	t.Helper()
	select {
	case report := <-tn.Attempts:
		return report
	case <-time.After(Timeout):
		require.FailNow(t, "no attempt was made")
		panic("unreachable")
	}
}

// AttemptsMade waits for that many attempts.
func (tn *Node) AttemptsMade(t testing.TB, count int) {
	t.Helper()
	for range count {
		tn.Attempt(t)
	}
}

// Topic creates a topic of the Event Grid schema.
func (tn *Node) Topic(t testing.TB, name string) *catalog.Topic {
	t.Helper()
	topic, _, err := tn.System.Topics.Put(t.Context(), name,
		catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: event.EventGrid})
	require.NoError(t, err)
	return topic
}

// SubscriptionSpec is the configuration of an event subscription for all events, under the default retry policy.
func SubscriptionSpec() catalog.SubscriptionSpec {
	return catalog.SubscriptionSpec{
		EndpointURL:         "https://example.com/hook?secret=1",
		EndpointKind:        policy.KindWebhook,
		EventDeliverySchema: event.EventGrid, RetryPolicy: catalog.RetryPolicySpec{Policy: policy.DefaultName},
	}
}

// Subscribe creates an event subscription; change alters SubscriptionSpec, and may be nil.
func (tn *Node) Subscribe(
	t testing.TB, topic, name string, change func(*catalog.SubscriptionSpec),
) *catalog.Subscription {
	t.Helper()
	spec := SubscriptionSpec()
	if change != nil {
		change(&spec)
	}
	sub, _, err := tn.System.Subscriptions.Put(t.Context(), topic, name, spec)
	require.NoError(t, err)
	return sub
}

// Publication makes count Event Grid events with the ids prefix-0, prefix-1, …
func Publication(topic, prefix string, count int) publish.Publication {
	events := make([]event.Event, count)
	for i := range events {
		id := fmt.Sprintf("%s-%d", prefix, i)
		events[i] = event.Event{
			Schema: event.EventGrid, ID: id, Type: "test", Subject: "subject/" + id,
			Body: fmt.Appendf(nil,
				`{"id":%q,"subject":"subject/%s","eventType":"test","eventTime":"2026-01-01T00:00:00Z","data":{}}`, id, id),
		}
	}
	return Of(topic, events...)
}

// Of publishes these events, as if they had been parsed.
func Of(topic string, events ...event.Event) publish.Publication {
	return publish.Publication{
		Topic: topic, Parse: func(*catalog.Topic) ([]event.Event, error) { return slices.Clone(events), nil },
	}
}

// Publish stores the events of Publication as one request.
func (tn *Node) Publish(t testing.TB, topic, prefix string, count int) *publish.Receipt {
	t.Helper()
	return tn.Send(t, Publication(topic, prefix, count))
}

// Send publishes.
func (tn *Node) Send(t testing.TB, p publish.Publication) *publish.Receipt {
	t.Helper()
	receipt, err := tn.System.Publisher.Publish(t.Context(), p)
	require.NoError(t, err)
	return receipt
}
