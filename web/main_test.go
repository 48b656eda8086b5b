package web_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testdb"
	"postrider/internal/testnode"
	"postrider/jobs"
	"postrider/jobs/publish"
	"postrider/policy"
	"postrider/server"
	"postrider/web"
)

func TestMain(m *testing.M) {
	// Tests wait for the engine and for locks. The command line overrides the number.
	_ = flag.Set("test.parallel", "8")
	os.Exit(testdb.Run(m, testnode.Migrate))
}

func newStore(ctx context.Context, pool *pgxpool.Pool, workers int) (*node.System, error) {
	sealer, err := postgres.NewSealer(testnode.Key)
	if err != nil {
		return nil, err
	}
	return node.New(ctx, node.Options{Pool: pool, Sealer: sealer, Node: "test", MaxWorkers: workers})
}

// dashboard is a dashboard with its own database.
type dashboard struct {
	pool  *pgxpool.Pool
	store *node.System
	echo  *echo.Echo
	api   http.Handler

	stopEngine func() // of setupRunning
}

// setup mounts a dashboard without sign-in; change may alter its options.
func setup(t testing.TB, change ...func(*web.Options)) *dashboard {
	return setupWorkers(t, 0, change...)
}

// setupWorkers is setup with workers of an engine.
func setupWorkers(t testing.TB, workers int, change ...func(*web.Options)) *dashboard {
	t.Helper()
	pool := testdb.Pool(t, testdb.New(t))
	b := &dashboard{pool: pool, echo: echo.New()}
	var err error
	b.store, err = newStore(t.Context(), pool, workers)
	require.NoError(t, err)
	api, err := server.New(server.Options{
		Parts: b.store.API(), AdminToken: "of the tests", Logger: slog.New(slog.DiscardHandler),
		AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, DeadLetters: exportLocations(t),
	})
	require.NoError(t, err)
	options := web.Options{
		Parts: b.store.Dashboard(), API: api.Handler(), Open: true, Logger: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&options)
	}
	require.NoError(t, web.Mount(b.echo, options))
	b.api = options.API
	return b
}

// exportLocations are the locations for exports of dead letters, with the mapping of an Event Grid container.
func exportLocations(t testing.TB) endpointconf.ExportLocations {
	t.Helper()
	location, err := endpointconf.ParseLocation("file:///srv/dead")
	require.NoError(t, err)
	locations := endpointconf.ExportLocations{Allowed: []endpointconf.Location{location}}
	require.NoError(t, locations.AddContainer("mystorage/dead=azblob://container"))
	return locations
}

// hostileResponse is the response of the endpoint /hostile, as body and as a header.
const hostileResponse = `<script>window.__x=1</script>"><img src=x onerror=window.__x=1>` + "\u202e"

// endpoint responds to /status/{code} with that status, and to /hostile with 503 and markup.
func endpoint(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.PathValue("code"))
		w.WriteHeader(code)
	})
	mux.HandleFunc("/hostile", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Hostile", hostileResponse)
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, hostileResponse)
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL
}

// setupRunning is a dashboard with a running engine, until stopEngine.
func setupRunning(t *testing.T, change ...func(*web.Options)) *dashboard {
	t.Helper()
	b := setupWorkers(t, 20, change...)
	require.NoError(t, b.store.Maintenance.EnsurePartitions(t.Context()))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); b.store.Run(ctx) }()
	engine, err := jobs.New(jobs.Options{
		Parts: b.store.Parts, Logger: slog.New(slog.DiscardHandler),
		AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, StopTimeout: time.Second,
		HandshakePause: time.Millisecond,
	})
	require.NoError(t, err)
	require.NoError(t, engine.Start(t.Context()))
	b.stopEngine = sync.OnceFunc(func() {
		stop, end := context.WithTimeout(context.Background(), 20*time.Second)
		defer end()
		_ = engine.Stop(stop)
	})
	t.Cleanup(func() {
		b.stopEngine()
		cancel()
		<-done
	})
	return b
}

// publish publishes events in the Event Grid schema. Each text is the id, type and subject of one event.
func (b *dashboard) publish(t *testing.T, topic string, texts ...string) {
	t.Helper()
	_, err := b.store.Publisher.Publish(t.Context(),
		publish.Publication{Topic: topic, Parse: func(*catalog.Topic) ([]event.Event, error) {
			events := make([]event.Event, len(texts))
			for i, text := range texts {
				quoted := quoteJSON(t, text)
				events[i] = event.Event{
					Schema: event.EventGrid, ID: text, Type: text, Subject: text, DataVersion: text,
					Body: fmt.Appendf(nil,
						`{"id":%[1]s,"subject":%[1]s,"eventType":%[1]s,"eventTime":"2026-01-01T00:00:00Z","dataVersion":%[1]s,`+
							`"data":{"n":12345678901234567890.10}}`, quoted),
				}
			}
			return events, nil
		}})
	require.NoError(t, err)
}

// seeded has deliveries in each state, on hold and in a batch, and an unmatched event. The texts are the ids, types
// and subjects of the events. Nothing is attempted or released afterwards.
func seeded(t *testing.T, texts ...string) *dashboard {
	t.Helper()
	b := seededRunning(t, texts...)
	b.stopEngine()
	return b
}

// seededRunning is seeded with an engine that goes on.
func seededRunning(t *testing.T, texts ...string) *dashboard {
	t.Helper()
	b := setupRunning(t)
	url := endpoint(t)
	at := func(path string) func(*catalog.SubscriptionSpec) {
		return func(s *catalog.SubscriptionSpec) { s.EndpointURL = url + path }
	}
	b.subscribe(t, "orders", "accounting", at("/status/200"))
	b.subscribe(t, "orders", "billing", at("/hostile"), func(s *catalog.SubscriptionSpec) { s.Labels = texts[:1] })
	b.subscribe(t, "orders", "archive", at("/status/404"))
	b.subscribe(t, "orders", "bulk", at("/status/202"),
		func(s *catalog.SubscriptionSpec) { s.MaxEventsPerBatch = ptr(10) })
	b.subscribe(t, "orders", "choosy", at("/status/200"),
		func(s *catalog.SubscriptionSpec) { s.Filter.SubjectBeginsWith = "nothing begins so" })
	b.subscribe(t, "orders", "held", at("/status/200"))
	b.subscribe(t, "empty", "choosy", at("/status/200"),
		func(s *catalog.SubscriptionSpec) { s.Filter.IncludedEventTypes = []string{"Other"} })
	b.pause(t, "orders", "held")
	b.publish(t, "orders", texts...)
	b.publish(t, "empty", texts[0])
	b.eventually(t, len(texts), "SELECT count(*) FROM postrider.dead_letters")
	b.eventually(t, len(texts),
		"SELECT count(*) FROM postrider.deliveries WHERE subscription = 'billing' AND attempts > 0")
	b.eventually(t, len(texts),
		"SELECT count(*) FROM postrider.deliveries WHERE subscription = 'accounting' AND state = 'delivered'")
	b.eventually(t, len(texts),
		"SELECT count(*) FROM postrider.deliveries WHERE subscription = 'bulk' AND state = 'delivered'")
	return b
}

// eventually waits until a query counts n.
func (b *dashboard) eventually(t *testing.T, n int, query string) {
	t.Helper()
	require.Eventually(t, func() bool { return b.value(t, query) == strconv.Itoa(n) }, 30*time.Second, 50*time.Millisecond,
		"%s: %s", query, b.value(t, query))
}

// value is the result of a query as text.
func (b *dashboard) value(t *testing.T, query string) (text string) {
	t.Helper()
	require.NoError(t, b.pool.QueryRow(t.Context(), "SELECT coalesce(("+query+")::text, '')").Scan(&text))
	return text
}

// everyPage is an address for each kind of page.
func (b *dashboard) everyPage(t *testing.T) []string {
	t.Helper()
	id := func(query string) string { return b.value(t, query) }
	return []string{
		"/ui/", "/ui/problems", "/ui/tail", "/ui/events",
		"/ui/events/" + id("SELECT system_id FROM postrider.events WHERE topic = 'orders' ORDER BY system_id LIMIT 1"),
		"/ui/deliveries",
		"/ui/deliveries/" + id("SELECT min(delivery_id) FROM postrider.deliveries WHERE subscription = 'billing'"),
		"/ui/deliveries/" + id("SELECT min(delivery_id) FROM postrider.deliveries WHERE subscription = 'bulk'"),
		"/ui/deliveries/" + id("SELECT min(delivery_id) FROM postrider.deliveries WHERE subscription = 'held'"),
		"/ui/deliveries/" + id("SELECT min(delivery_id) FROM postrider.deliveries WHERE subscription = 'archive'"),
		"/ui/batches", "/ui/batches/" + id("SELECT min(batch_id) FROM postrider.batches"),
		"/ui/dead-letters", "/ui/dead-letters/" + id("SELECT dead_letter_id FROM postrider.dead_letters ORDER BY 1 LIMIT 1"),
		"/ui/dead-letters/" + id("SELECT dead_letter_id FROM postrider.dead_letters ORDER BY 1 LIMIT 1") + "/purge",
		"/ui/dead-letters/" + id("SELECT dead_letter_id FROM postrider.dead_letters ORDER BY 1 LIMIT 1") + "/repair",
		"/ui/dead-letters/redeliver?topic=orders", "/ui/dead-letters/purge", "/ui/dead-letters/repair",
		"/ui/deliveries/retry?topic=orders", "/ui/deliveries/cancel",
		"/ui/operations", "/ui/topics", "/ui/topics/orders", "/ui/subscriptions", "/ui/subscriptions/orders/billing",
		"/ui/subscriptions/orders/held",
		"/ui/new-topic", "/ui/topics/orders/edit", "/ui/topics/orders/delete", "/ui/topics/empty/keys",
		"/ui/topics/orders/publish", "/ui/subscriptions/new", "/ui/subscriptions/new?topic=orders",
		"/ui/subscriptions/orders/billing/edit",
		"/ui/subscriptions/orders/choosy/edit", "/ui/subscriptions/orders/billing/delete", "/ui/policies/new?from=ga-2021",
		"/ui/policies", "/ui/jobs", "/ui/storage", "/ui/audit", "/ui/query?question=failing",
	}
}

// request sends a request to the dashboard; change may alter it.
func (b *dashboard) request(method, path string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, path, nil)
	request.Host = "localhost:8080"
	for _, f := range change {
		f(request)
	}
	response := httptest.NewRecorder()
	b.echo.ServeHTTP(response, request)
	return response
}

// page reads a page and requires status 200.
func (b *dashboard) page(t *testing.T, path string) string {
	t.Helper()
	response := b.request(http.MethodGet, path)
	require.Equal(t, http.StatusOK, response.Code, response.Body)
	return response.Body.String()
}

// deadLetter is a dead letter to insert; empty fields get defaults.
type deadLetter struct {
	at                                               time.Time
	topic, subscription, eventID, eventType, subject string
	reason                                           string
	attempts                                         int
	outcome                                          *string
	status                                           *int
	attempted                                        *time.Time
	body                                             string
}

func (b *dashboard) insert(t *testing.T, deadLetters ...deadLetter) (ids []uuid.UUID) {
	t.Helper()
	const statement = `INSERT INTO postrider_internal.dead_letters (id, dead_lettered_at, delivery_id, subscription_id,
		    topic_id, topic, subscription,
		endpoint_base_url, reason, attempts, last_outcome, last_status, last_attempt_at, time_to_live_since, published_at,
		    event_uuid,
		    event_id, event_type,
		subject, source, data_version, schema, retry_policy, body)
		VALUES ($1, $2, 1, 1, 1, $3, $4, 'https://example.com/', $5, $6, $7, $8, $9, $2, $2, $1, $10, $11, $12, '', '',
		    'EventGridSchema', 'ga-2021', $13)`
	batch := &pgx.Batch{}
	for _, l := range deadLetters {
		id := uuid.New()
		ids = append(ids, id)
		batch.Queue(statement, id, l.at, orText(l.topic, "orders"), orText(l.subscription, "billing"),
			orText(l.reason, "MaxDeliveryAttemptsExceeded"),
			l.attempts, l.outcome, l.status, l.attempted, orText(l.eventID, "e-1"), orText(l.eventType, "Order.Placed"),
			l.subject, []byte(orText(l.body, "{}")))
	}
	require.NoError(t, b.pool.SendBatch(t.Context(), batch).Close())
	return ids
}

func orText(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// subscribe creates an event subscription and its topic.
func (b *dashboard) subscribe(t *testing.T, topic, name string, change ...func(*catalog.SubscriptionSpec)) {
	t.Helper()
	_, _, err := b.store.Topics.Put(t.Context(), topic,
		catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: event.EventGrid})
	require.NoError(t, err)
	spec := catalog.SubscriptionSpec{
		EndpointURL:  "https://example.com/hook?code=planted-secret",
		EndpointKind: policy.KindWebhook, EventDeliverySchema: event.EventGrid,
		RetryPolicy: catalog.RetryPolicySpec{Policy: "ga-2021"},
	}
	for _, f := range change {
		f(&spec)
	}
	_, _, err = b.store.Subscriptions.Put(t.Context(), topic, name, spec)
	require.NoError(t, err)
}

func (b *dashboard) pause(t *testing.T, topic, subscription string) {
	t.Helper()
	_, err := b.store.Holds.Pause(t.Context(), topic, subscription, nil)
	require.NoError(t, err)
}

// probation puts an event subscription in probation; next is the time until the next probe. probeJob is 0 if no probe
// is in progress.
func (b *dashboard) probation(t *testing.T, topic, subscription string, probeIn time.Duration, probeJob int) {
	t.Helper()
	_, err := b.pool.Exec(t.Context(),
		`INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts)
		SELECT $1::bigint, 'running', '{}', 'deliver', 'deliveries', 1, 1000 WHERE $1 > 0`, probeJob)
	require.NoError(t, err)
	tag, err := b.pool.Exec(t.Context(),
		`INSERT INTO postrider_internal.probations (probation_key, endpoint_base_url, since,
		    until, cause, step, failures_in_a_row, probe_job_id)
		SELECT postrider_internal.probation_key(p.probation_scope, s.endpoint_hash, s.id), s.endpoint_base_url, now(),
		       now() + $3::interval, 'Busy', 1, 10, nullif($4::bigint, 0)
		  FROM postrider_internal.event_subscriptions s JOIN postrider_internal.topics t ON t.id = s.topic_id
		  JOIN postrider_internal.retry_policies p ON p.name = s.retry_policy
		 WHERE t.name = $1 AND s.name = $2
		ON CONFLICT (probation_key) DO UPDATE SET since = excluded.since, until = excluded.until, cause = excluded.cause,
		    step = excluded.step,
		       probe_job_id = excluded.probe_job_id`, topic, subscription, probeIn, probeJob)
	require.NoError(t, err)
	require.Equal(t, int64(1), tag.RowsAffected())
}

func quoteJSON(t *testing.T, text string) string {
	t.Helper()
	var out json.RawMessage
	out, err := json.Marshal(text)
	require.NoError(t, err)
	return string(out)
}

func ptr[T any](v T) *T { return &v }
