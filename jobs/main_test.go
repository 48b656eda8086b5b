package jobs_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testdb"
	"postrider/internal/testnode"
	"postrider/jobs"
	"postrider/jobs/publish"
	"postrider/policy"
)

func TestMain(m *testing.M) {
	// Most of these tests wait for an endpoint or a heartbeat: two at once on two cores would take five times as long.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	code := testdb.Run(m, testnode.Migrate)
	// Engines, stores and endpoints must be closed.
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

var testKey = testnode.Key

const (
	topicName = "orders"
	// waitTimeout is how long a test waits for an expected event.
	waitTimeout = time.Minute
	tick        = 10 * time.Millisecond
)

// bundle is one database, one store and the engines that a test starts on it.
type bundle struct {
	url      string
	pool     *pgxpool.Pool
	store    *node.System
	attempts chan jobs.AttemptReport // the recorded attempts of all engines
}

// setup creates a database with one topic of the Event Grid schema.
func setup(t *testing.T) *bundle {
	t.Helper()
	return setupTopic(t, event.EventGrid)
}

// setupTopic creates a database with one topic.
func setupTopic(t *testing.T, schema event.Schema) *bundle {
	t.Helper()
	return setupSpec(t, catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: schema})
}

// setupSpec creates a database with one topic. It checks the invariants when the test ends, after its engines stopped.
func setupSpec(t *testing.T, topic catalog.TopicSpec) *bundle {
	t.Helper()
	b := &bundle{url: testdb.New(t), attempts: make(chan jobs.AttemptReport, 10_000)}
	b.store, b.pool = newStore(t, b.url, "node-1")
	require.NoError(t, b.store.Maintenance.EnsurePartitions(t.Context()))
	t.Cleanup(func() { b.requireInvariants(t) })
	_, _, err := b.store.Topics.Put(t.Context(), topicName, topic)
	require.NoError(t, err)
	return b
}

// newStore opens a separate store on a database, as another process would, and runs it until the test ends.
func newStore(t *testing.T, url, name string) (*node.System, *pgxpool.Pool) {
	t.Helper()
	return newStoreWith(t, url, node.Options{Node: name})
}

func newStoreWith(t *testing.T, url string, o node.Options) (*node.System, *pgxpool.Pool) {
	t.Helper()
	pool := testdb.Pool(t, url)
	sealer, err := postgres.NewSealer(testKey)
	require.NoError(t, err)
	o.Pool, o.Sealer, o.Logger = pool, sealer, quiet()
	if o.MaxWorkers == 0 {
		o.MaxWorkers = 100
	}
	s, err := node.New(t.Context(), o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return s, pool
}

// useWorkers replaces the bundle's store by one with n workers.
func (b *bundle) useWorkers(t *testing.T, n int) {
	t.Helper()
	b.store, _ = newStoreWith(t, b.url, node.Options{Node: "node-1", MaxWorkers: n}) // the invariants need the pool
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// newEngine returns an engine that may call loopback and adds no jitter, without starting it.
func (b *bundle) newEngine(t *testing.T, s *node.System, change func(*jobs.Options)) *jobs.Engine {
	t.Helper()
	o := jobs.Options{
		Parts: s.Parts, Logger: quiet(), StopTimeout: time.Second,
		AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")},
		Jitter:    func() float64 { return 0 },
		OnAttempt: func(r jobs.AttemptReport) { b.attempts <- r },
	}
	if change != nil {
		change(&o)
	}
	e, err := jobs.New(o)
	require.NoError(t, err)
	return e
}

// start runs an engine on the bundle's store until the test ends.
func (b *bundle) start(t *testing.T, change func(*jobs.Options)) {
	t.Helper()
	e := b.newEngine(t, b.store, change)
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() { requireStops(t, e) })
}

func requireStops(t *testing.T, e *jobs.Engine) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	require.NoError(t, e.Stop(ctx))
}

// subscribe creates an event subscription for all events of the topic.
func (b *bundle) subscribe(
	t *testing.T, name, url string, change func(*catalog.SubscriptionSpec),
) *catalog.Subscription {
	t.Helper()
	spec := catalog.SubscriptionSpec{
		EndpointURL: url, EndpointKind: policy.KindWebhook,
		EventDeliverySchema: event.EventGrid, RetryPolicy: catalog.RetryPolicySpec{Policy: policy.DefaultName},
	}
	if change != nil {
		change(&spec)
	}
	sub, _, err := b.store.Subscriptions.Put(t.Context(), topicName, name, spec)
	require.NoError(t, err)
	return sub
}

// under sets the retry policy of an event subscription.
func under(retryPolicy string) func(*catalog.SubscriptionSpec) {
	return func(s *catalog.SubscriptionSpec) { s.RetryPolicy.Policy = retryPolicy }
}

// eventGridBody is an event as a publisher writes it; data is JSON text.
func eventGridBody(id, data string) string {
	return fmt.Sprintf(`{"id":%q,"subject":"s","eventType":"test","eventTime":"2026-01-01T00:00:00Z",`+
		`"dataVersion":"2.1","data":%s}`, id, data)
}

// publish stores one request's body as the server would.
func (b *bundle) publish(t *testing.T, contentType, body string) *publish.Receipt {
	t.Helper()
	return b.publishRequest(t, http.Header{"Content-Type": {contentType}}, body)
}

// publishRequest stores one request as the server would.
func (b *bundle) publishRequest(t *testing.T, header http.Header, body string) *publish.Receipt {
	t.Helper()
	receipt, err := b.store.Publisher.Publish(t.Context(),
		publish.Publication{Topic: topicName, Parse: func(topic *catalog.Topic) ([]event.Event, error) {
			in := event.Input{
				Schema: topic.InputSchema, Topic: topic.Name, Mapping: topic.InputSchemaMapping, NewID: uuid.NewString,
				Now: time.Now(),
			}
			return in.ParseRequest(header, []byte(body))
		}})
	require.NoError(t, err)
	return receipt
}

// publishOne stores one Event Grid event.
func (b *bundle) publishOne(t *testing.T, id string) *publish.Receipt {
	t.Helper()
	return b.publish(t, "application/json", "["+eventGridBody(id, "{}")+"]")
}

// attempt waits for the next recorded attempt.
func (b *bundle) attempt(t *testing.T) jobs.AttemptReport {
	t.Helper()
	select {
	case report := <-b.attempts:
		return report
	case <-time.After(waitTimeout):
		require.FailNow(t, "no attempt was made")
		panic("unreachable")
	}
}

// attemptsMade waits for n attempts.
func (b *bundle) attemptsMade(t *testing.T, n int) {
	t.Helper()
	for range n {
		b.attempt(t)
	}
}

// count returns the number that a query returns. It works in cleanups, too.
func (b *bundle) count(t *testing.T, query string, args ...any) int {
	t.Helper()
	var n int
	require.NoError(t, b.pool.QueryRow(context.WithoutCancel(t.Context()), query, args...).Scan(&n))
	return n
}

// become waits until a query returns a number.
func (b *bundle) become(t *testing.T, want int, query string, args ...any) {
	t.Helper()
	within(t, query, func() bool { return b.count(t, query, args...) == want })
}

func (b *bundle) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	_, err := b.pool.Exec(t.Context(), statement, args...)
	require.NoError(t, err)
}

// copyPolicy copies a retry policy with some columns changed, by SQL.
func (b *bundle) copyPolicy(t *testing.T, from, to, changes string) {
	t.Helper()
	b.exec(t, `INSERT INTO postrider_internal.retry_policies
		SELECT (jsonb_populate_record(p, $3::jsonb || jsonb_build_object('name', $2::text, 'built_in', false))).*
		  FROM postrider_internal.retry_policies p WHERE name = $1`, from, to, changes)
	b.exec(t, `INSERT INTO postrider_internal.retry_policy_cells (policy, endpoint_kind, condition, action, min_delay)
		SELECT $2, endpoint_kind, condition, action, min_delay FROM postrider_internal.retry_policy_cells WHERE policy = $1`,
		from, to)
	require.NoError(t, b.store.Cache.Reload(t.Context()))
}

// withoutProbation switches probation off, for tests of many failures at one endpoint.
func (b *bundle) withoutProbation(t *testing.T) {
	t.Helper()
	b.exec(t, "UPDATE postrider_internal.retry_policies SET probation_scope = 'none'")
	require.NoError(t, b.store.Cache.Reload(t.Context()))
}

// travelStatement makes the next attempt of each waiting delivery due now: all its times move into the past by the
// remaining wait, those of recorded attempts too, so that they stay consistent.
const travelStatement = `
WITH waiting AS (
    SELECT d.id, d.job_id, d.next_attempt_at - now() AS wait FROM postrider_internal.deliveries d
      JOIN postrider_internal.river_job j ON j.id = d.job_id AND j.state IN ('scheduled', 'available', 'retryable')
     WHERE d.next_attempt_at > now() FOR UPDATE
), attempts AS (
    UPDATE postrider_internal.delivery_attempts a SET started_at = started_at - wait,
        next_attempt_at = next_attempt_at - wait
      FROM waiting WHERE a.delivery_id = waiting.id
), deliveries AS (
    UPDATE postrider_internal.deliveries d SET time_to_live_since = time_to_live_since - wait,
        first_attempt_at = first_attempt_at - wait,
           last_attempt_at = last_attempt_at - wait, next_attempt_at = next_attempt_at - wait,
           not_before = not_before - wait
      FROM waiting WHERE d.id = waiting.id
), due AS (
    UPDATE postrider_internal.river_job j SET scheduled_at = now(), state = 'available' FROM waiting
    WHERE j.id = waiting.job_id
)
SELECT count(*) FROM waiting`

// travelBatches is the same for batches with their members. The time at which a batch was cut stays: it is part of its
// message id.
const travelBatches = `
WITH waiting AS (
    SELECT b.id, b.job_id, b.next_attempt_at - now() AS wait FROM postrider_internal.batches b
      JOIN postrider_internal.river_job j ON j.id = b.job_id AND j.state IN ('scheduled', 'available', 'retryable')
     WHERE b.next_attempt_at > now() FOR UPDATE
), attempts AS (
    UPDATE postrider_internal.delivery_attempts a SET started_at = started_at - wait,
        next_attempt_at = next_attempt_at - wait
      FROM waiting WHERE a.batch_id = waiting.id
), batches AS (
    UPDATE postrider_internal.batches b SET first_attempt_at = first_attempt_at - wait,
        last_attempt_at = last_attempt_at - wait,
           next_attempt_at = next_attempt_at - wait, not_before = not_before - wait FROM waiting WHERE b.id = waiting.id
), members AS (
    UPDATE postrider_internal.left_members m SET left_at = left_at - wait FROM waiting WHERE m.batch_id = waiting.id
), deliveries AS (
    UPDATE postrider_internal.deliveries d SET time_to_live_since = time_to_live_since - wait,
        first_attempt_at = first_attempt_at - wait,
           last_attempt_at = last_attempt_at - wait, next_attempt_at = next_attempt_at - wait
      FROM waiting WHERE d.batch_id = waiting.id
), due AS (
    UPDATE postrider_internal.river_job j SET scheduled_at = now(), state = 'available' FROM waiting
    WHERE j.id = waiting.job_id
)
SELECT count(*) FROM waiting`

// travel makes the next attempt of every waiting delivery and batch due, and returns their number.
func (b *bundle) travel(t *testing.T) int {
	t.Helper()
	n := b.count(t, travelStatement) + b.count(t, travelBatches)
	b.exec(t, `SELECT pg_notify('postrider_internal.river_insert', '{"queue":"deliveries"}')`)
	return n
}

// settle waits until nothing is due or waits at the gate: every possible attempt was recorded.
func (b *bundle) settle(t *testing.T) {
	t.Helper()
	b.become(t, 0, `SELECT (SELECT count(*) FROM postrider_internal.river_job WHERE state = 'running'
		    OR (state IN ('available', 'scheduled', 'retryable') AND scheduled_at <= now()))
		+ (SELECT count(*) FROM postrider_internal.deliveries WHERE hold = 'admission')
		+ (SELECT count(*) FROM postrider_internal.batches WHERE hold = 'admission')`)
}
