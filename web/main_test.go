package web_test

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/node"
	"postrider/internal/testdb"
	"postrider/internal/testnode"
	"postrider/jobs"
	"postrider/jobs/publish"
	"postrider/server"
	"postrider/web"
)

func TestMain(m *testing.M) {
	// Tests wait for the engine and for locks. The command line overrides the number.
	_ = flag.Set("test.parallel", "8")
	os.Exit(testdb.Run(m, testnode.Template()))
}

// dashboard is a dashboard with its own node and database.
type dashboard struct {
	*testnode.Node

	echo *echo.Echo
	api  http.Handler
}

// setup mounts a dashboard without sign-in; change may alter its options.
func setup(t testing.TB, change ...func(*web.Options)) *dashboard {
	t.Helper()
	return mount(t, node.Options{Node: "test"}, change...)
}

// setupRunning is a dashboard with a running engine.
func setupRunning(t *testing.T, change ...func(*web.Options)) *dashboard {
	t.Helper()
	b := mount(t, node.Options{Node: "test", MaxWorkers: 20}, change...)
	b.Start(t, func(o *jobs.Options) { o.HandshakePause = time.Millisecond })
	return b
}

func mount(t testing.TB, o node.Options, change ...func(*web.Options)) *dashboard {
	t.Helper()
	b := &dashboard{Node: testnode.Open(t, testdb.New(t), o), echo: echo.New()}
	api := server.Options{
		Parts: b.System.API(), AdminToken: "of the tests", Logger: slog.New(slog.DiscardHandler),
		AllowCIDR: testnode.Loopback, DeadLetters: exportLocations(t),
	}
	if o.MaxWorkers == 0 {
		api.ValidationWait = time.Millisecond
	}
	rest, err := server.New(api)
	require.NoError(t, err)
	b.api = rest.Handler()
	options := web.Options{
		Parts: b.System.Dashboard(), API: b.api, Open: true, Logger: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&options)
	}
	require.NoError(t, web.Mount(b.echo, options))
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

// publish publishes events in the Event Grid schema. Each text is the id, type and subject of one event.
func (b *dashboard) publish(t *testing.T, topic string, texts ...string) {
	t.Helper()
	_, err := b.System.Publisher.Publish(t.Context(),
		publish.Publication{Topic: topic, Parse: func(*catalog.Topic) (events []event.Event, err error) {
			for _, text := range texts {
				events = append(events, event.Event{
					Schema: event.EventGrid, ID: text, Type: text, Subject: text, DataVersion: text,
					Body: fmt.Appendf(nil,
						`{"id":%[1]s,"subject":%[1]s,"eventType":%[1]s,"eventTime":"2026-01-01T00:00:00Z","dataVersion":%[1]s,`+
							`"data":{"n":12345678901234567890.10}}`, quoteJSON(t, text)),
				})
			}
			return events, nil
		}})
	require.NoError(t, err)
}

// to has an event subscription deliver to a URL.
func to(url string) func(*catalog.SubscriptionSpec) {
	return func(s *catalog.SubscriptionSpec) { s.EndpointURL = url }
}

// seed stores deliveries in each state, on hold and in a batch, and an unmatched event. The texts are the ids, types
// and subjects of the events.
func (b *dashboard) seed(t *testing.T, texts ...string) {
	t.Helper()
	url := endpoint(t)
	at := func(path string) func(*catalog.SubscriptionSpec) { return to(url + path + "?code=planted-secret") }
	b.subscribe(t, "orders", "accounting", at("/status/200"))
	b.subscribe(t, "orders", "billing", at("/hostile"), func(s *catalog.SubscriptionSpec) { s.Labels = texts[:1] })
	b.subscribe(t, "orders", "archive", at("/status/404"))
	b.subscribe(t, "orders", "bulk", at("/status/202"), testnode.Batching(10, 64))
	b.subscribe(t, "orders", "choosy", at("/status/200"),
		func(s *catalog.SubscriptionSpec) { s.Filter.SubjectBeginsWith = "nothing begins so" })
	b.subscribe(t, "orders", "held", at("/status/200"))
	b.subscribe(t, "empty", "choosy", at("/status/200"),
		func(s *catalog.SubscriptionSpec) { s.Filter.IncludedEventTypes = []string{"Other"} })
	b.pause(t, "orders", "held")
	b.publish(t, "orders", texts...)
	b.publish(t, "empty", texts[0])
	b.Become(t, len(texts), "SELECT count(*) FROM postrider.dead_letters")
	b.Become(t, len(texts),
		"SELECT count(*) FROM postrider.deliveries WHERE subscription = 'billing' AND attempts > 0")
	b.Become(t, 2*len(texts), "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered'")
}

// value is the result of a query as text.
func (b *dashboard) value(t *testing.T, query string) string {
	t.Helper()
	return b.Text(t, "SELECT coalesce(("+query+")::text, '')")
}

// everyPage is an address for each kind of page.
func (b *dashboard) everyPage(t *testing.T) []string {
	t.Helper()
	letter := "/ui/dead-letters/" + b.value(t, "SELECT dead_letter_id FROM postrider.dead_letters ORDER BY 1 LIMIT 1")
	paths := []string{
		"/ui/", "/ui/problems",
		"/ui/problems/" + b.value(t, "SELECT postrider_internal.problem_id(min(subscription_id), 'Busy') "+
			"FROM postrider.event_subscriptions WHERE subscription = 'billing'"),
		"/ui/tail", "/ui/events",
		"/ui/events/" + b.value(t, "SELECT min(system_id::text) FROM postrider.events WHERE topic = 'orders'"),
		"/ui/deliveries", "/ui/batches", "/ui/batches/" + b.value(t, "SELECT min(batch_id) FROM postrider.batches"),
		"/ui/dead-letters", letter, letter + "/purge", letter + "/repair",
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
	for _, of := range []string{"billing", "bulk", "held", "archive"} {
		paths = append(paths, "/ui/deliveries/"+b.deliveryOf(t, of))
	}
	return paths
}

// deliveryOf is the id of the first delivery of an event subscription.
func (b *dashboard) deliveryOf(t *testing.T, subscription string) string {
	t.Helper()
	return b.value(t, "SELECT min(delivery_id) FROM postrider.deliveries WHERE subscription = '"+subscription+"'")
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

// requireTexts fails unless the visible text of a page contains all of these.
func (b *dashboard) requireTexts(t *testing.T, path string, want ...string) {
	t.Helper()
	page := text(b.page(t, path))
	for _, part := range want {
		require.Contains(t, page, part, path)
	}
}

// rest sends a request to the API as an administrator and decodes the response.
func (b *dashboard) rest(t *testing.T, method, path, body string) (status int, response map[string]any) {
	t.Helper()
	r := httptest.NewRequestWithContext(access.WithActor(t.Context(), access.Actor{Name: "rest", Role: access.RoleAdmin}),
		method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	b.api.ServeHTTP(w, r)
	if w.Body.Len() > 0 {
		decoder := json.NewDecoder(w.Body)
		decoder.UseNumber()
		require.NoError(t, decoder.Decode(&response))
	}
	return w.Code, response
}

func (b *dashboard) put(t *testing.T, path, body string) {
	t.Helper()
	status, response := b.rest(t, http.MethodPut, path, body)
	require.Less(t, status, 300, response)
}

// plainHook are the settings of an event subscription without a handshake.
const plainHook = `{"endpointUrl":"https://example.com/hook","endpointValidation":"skip"}`

// hook creates the topic orders and its event subscription billing, and returns their paths in the API.
func (b *dashboard) hook(t *testing.T) (topic, subscription string) {
	t.Helper()
	topic, subscription = "/v1/topics/orders", "/v1/topics/orders/subscriptions/billing"
	b.put(t, topic, "{}")
	b.put(t, subscription, plainHook)
	return topic, subscription
}

// deadLetter is a dead letter to insert; empty fields get defaults.
type deadLetter struct {
	at                                                       time.Time
	topic, subscription, eventID, eventType, subject, reason string
	outcome, body                                            string
	status                                                   *int
}

func (b *dashboard) insert(t *testing.T, deadLetters ...deadLetter) {
	t.Helper()
	const statement = `INSERT INTO postrider_internal.dead_letters (id, dead_lettered_at, delivery_id, subscription_id,
		    topic_id, topic, subscription, endpoint_base_url, reason, attempts, last_outcome, last_status, time_to_live_since,
		    published_at, event_uuid, event_id, event_type, subject, source, data_version, schema, retry_policy, body)
		VALUES ($1, $2, 1, 1, 1, $3, $4, 'https://example.com/', $5, 0, nullif($6, ''), $7, $2, $2, $1, $8, $9, $10, '', '',
		    'EventGridSchema', 'ga-2021', $11)`
	batch := &pgx.Batch{}
	for _, l := range deadLetters {
		batch.Queue(statement, uuid.New(), l.at, cmp.Or(l.topic, "orders"), cmp.Or(l.subscription, "billing"),
			cmp.Or(l.reason, "MaxDeliveryAttemptsExceeded"), l.outcome, l.status, cmp.Or(l.eventID, "e-1"),
			cmp.Or(l.eventType, "Order.Placed"), l.subject, []byte(cmp.Or(l.body, "{}")))
	}
	require.NoError(t, b.Pool.SendBatch(t.Context(), batch).Close())
}

// subscribe creates an event subscription and its topic.
func (b *dashboard) subscribe(t *testing.T, topic, name string, change ...func(*catalog.SubscriptionSpec)) {
	t.Helper()
	b.Topic(t, topic)
	b.Subscribe(t, topic, name, func(s *catalog.SubscriptionSpec) {
		for _, f := range change {
			f(s)
		}
	})
}

func (b *dashboard) pause(t *testing.T, topic, subscription string) {
	t.Helper()
	_, err := b.System.Holds.Pause(t.Context(), topic, subscription, nil)
	require.NoError(t, err)
}

func (b *dashboard) resume(t *testing.T, topic, subscription string) {
	t.Helper()
	_, err := b.System.Holds.Resume(t.Context(), topic, subscription)
	require.NoError(t, err)
}

func quoteJSON(t *testing.T, text string) string {
	t.Helper()
	out, err := json.Marshal(text)
	require.NoError(t, err)
	return string(out)
}
