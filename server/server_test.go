package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/catalog"
	"postrider/internal/node"
	"postrider/internal/testdb"
	"postrider/internal/testnode"
	"postrider/server"
	"postrider/server/api"
)

func TestMain(m *testing.M) { os.Exit(testdb.Run(m, testnode.Template())) }

const (
	adminToken = "the-admin-token"
	devKey     = "ZGV2IGtleSBkZXYga2V5IGRldiBrZXkgZGV2IGtleSE="
)

// These tests skip validation; see validation_test.go.
func skipValidation(string) catalog.EndpointValidation { return catalog.ValidationSkip }

// service is a server with its own database.
type service struct {
	t        *testing.T
	tn       *testnode.Node
	url      string
	store    *node.System
	server   *server.Server
	counters *server.Counters
	db       *pgxpool.Pool
}

func setup(t *testing.T, change ...func(*server.Options)) *service {
	t.Helper()
	return (&service{t: t}).node(testdb.New(t), 0, change...)
}

// node is a server of another node, whose database is at dbURL.
func (s *service) node(dbURL string, workers int, change ...func(*server.Options)) *service {
	s.t.Helper()
	tn := testnode.Open(s.t, dbURL, node.Options{Node: "test", MaxWorkers: workers})
	return (&service{t: s.t, tn: tn, store: tn.System, db: tn.Pool}).with(change...)
}

// with is another server of the same node, with other options.
func (s *service) with(change ...func(*server.Options)) *service {
	s.t.Helper()
	other := *s
	other.counters = server.NewCounters()
	options := server.Options{
		Counters: other.counters,
		Parts:    s.store.API(), AdminToken: adminToken, DevKey: devKey, Logger: slog.New(slog.DiscardHandler),
		DefaultValidation: skipValidation, ValidationWait: time.Millisecond,
		Metrics: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
	}
	for _, c := range change {
		c(&options)
	}
	var err error
	other.server, err = server.New(options)
	require.NoError(s.t, err)
	listener := httptest.NewServer(other.server.Handler())
	s.t.Cleanup(listener.Close)
	other.url = listener.URL
	return &other
}

// withBilling is a server with event subscription billing on topic orders; key publishes to the topic.
func withBilling(t *testing.T, change ...func(*server.Options)) (s *service, key string) {
	t.Helper()
	s = setup(t, change...)
	key = s.topic("orders", "")
	s.subscription("orders", "billing", `{"endpointUrl":"https://example.com/in"}`)
	return s, key
}

const billing = "/v1/topics/orders/subscriptions/billing"

// response is the response to a request.
type response struct {
	t      *testing.T
	status int
	header http.Header
	body   string
}

// testClient has its own connections: the end of any httptest.Server closes those of http.DefaultTransport, and a
// request that begins at that moment fails.
var testClient = &http.Client{Transport: &http.Transport{}}

// send makes a request; headers are pairs of name and value.
func (s *service) send(method, path, body string, headers ...string) response {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(s.t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	got, err := testClient.Do(r)
	require.NoError(s.t, err)
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	require.NoError(s.t, err)
	requireListed(s.t, method, path, got.StatusCode)
	if got.StatusCode == http.StatusConflict {
		var conflict api.ErrorResponse
		require.NoError(s.t, json.Unmarshal(text, &conflict))
		require.Contains(s.t, readSpecification(s.t).Components.Schemas["ConflictCode"].Enum, conflict.Error.Code)
	}
	return response{s.t, got.StatusCode, got.Header, string(text)}
}

// serve calls the handler without a connection, from address 192.0.2.1. who is the signed-in user of the dashboard, if
// there is one. The header Content-Length -1 is an unknown length.
func (s *service) serve(who access.Actor, method, path, body string, headers ...string) response {
	s.t.Helper()
	ctx := access.WithActor(s.t.Context(), who)
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Content-Length" {
			r.ContentLength = -1
			continue
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.server.Handler().ServeHTTP(w, r)
	return response{s.t, w.Code, w.Header(), w.Body.String()}
}

// manage makes a request with the admin token.
func (s *service) manage(method, path, body string, headers ...string) response {
	s.t.Helper()
	return s.send(method, path, body, append(headers, "Authorization", "Bearer "+adminToken)...)
}

// The requests with the admin token.
func (s *service) get(path string) response { s.t.Helper(); return s.manage(http.MethodGet, path, "") }

func (s *service) put(path, body string) response {
	s.t.Helper()
	return s.manage(http.MethodPut, path, body)
}

func (s *service) post(path, body string) response {
	s.t.Helper()
	return s.manage(http.MethodPost, path, body)
}

func (s *service) patch(path, body string) response {
	s.t.Helper()
	return s.manage(http.MethodPatch, path, body)
}

func (s *service) delete(path string) response {
	s.t.Helper()
	return s.manage(http.MethodDelete, path, "")
}

// topic creates a topic and returns its first key.
func (s *service) topic(name, settings string) string {
	s.t.Helper()
	return s.put("/v1/topics/"+name, settings).json(201)["key1"].(string)
}

func (s *service) subscription(topic, name, settings string) {
	s.t.Helper()
	s.put("/v1/topics/"+topic+"/subscriptions/"+name, settings).json(201)
}

// publish posts to a topic in the Event Grid schema unless headers say otherwise.
func (s *service) publish(topic, key, body string, headers ...string) response {
	s.t.Helper()
	all := append([]string{"Content-Type", "application/json", "aeg-sas-key", key}, headers...)
	return s.send(http.MethodPost, "/topics/"+topic+"/api/events?api-version=2018-01-01", body, all...)
}

// events publishes one event of each id to topic orders.
func (s *service) events(key string, ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		s.publish("orders", key, gridEvents(id)).is(200)
	}
}

// count queries a number.
func (s *service) count(query string, args ...any) int {
	s.t.Helper()
	return s.tn.Count(s.t, query, args...)
}

// change changes exactly one row without the server.
func (s *service) change(statement string, args ...any) {
	s.t.Helper()
	tag, err := s.db.Exec(s.t.Context(), statement, args...)
	require.NoError(s.t, err)
	require.Equal(s.t, int64(1), tag.RowsAffected())
}

func (s *service) rows(query string, args ...any) []map[string]any {
	s.t.Helper()
	rows, err := s.db.Query(s.t.Context(), query, args...)
	require.NoError(s.t, err)
	list, err := pgx.CollectRows(rows, pgx.RowToMap)
	require.NoError(s.t, err)
	return list
}

// is requires the status.
func (a response) is(status int) response {
	a.t.Helper()
	require.Equal(a.t, status, a.status, a.body)
	return a
}

// json requires the status and reads the body.
func (a response) json(status int) map[string]any {
	a.t.Helper()
	a.is(status)
	require.Contains(a.t, a.header.Get("Content-Type"), "application/json")
	var v map[string]any
	require.NoError(a.t, json.Unmarshal([]byte(a.body), &v), a.body)
	return v
}

// rejected requires an error response and returns it.
func (a response) rejected(status int, code string) api.Error {
	a.t.Helper()
	a.json(status)
	var v api.ErrorResponse
	require.NoError(a.t, json.Unmarshal([]byte(a.body), &v))
	require.Equal(a.t, code, v.Error.Code, a.body)
	require.NotEmpty(a.t, v.Error.Message)
	require.NotNil(a.t, v.Error.Details, "details is an array, if only an empty one")
	return v.Error
}

// targets are the details' targets, in order.
func targets(e api.Error) []string {
	list := []string{}
	for _, d := range e.Details {
		list = append(list, d.Target)
	}
	return list
}

// gridEvent is a valid event in the Event Grid schema.
func gridEvent(id string) string {
	return fmt.Sprintf(`{"id":%q,"subject":"orders/%s","eventType":"Shop.OrderPlaced",`+
		`"eventTime":"2026-11-20T09:30:00Z","dataVersion":"1","data":{"n":12345678901234567890}}`, id, id)
}

// gridEvents is a request with one event of each id.
func gridEvents(ids ...string) string {
	events := make([]string, len(ids))
	for i, id := range ids {
		events[i] = gridEvent(id)
	}
	return "[" + strings.Join(events, ",") + "]"
}

// cloudEvent is a valid CloudEvent.
func cloudEvent(id string) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/shop","type":"shop.order.placed","subject":"orders/%s",`+
		`"time":"2026-11-20T09:30:00Z","data":{"n":1.50}}`, id, id)
}

func TestNewRejectsInvalidOptions(t *testing.T) {
	t.Parallel()
	parts := setup(t).store.API()
	for says, options := range map[string]server.Options{
		"Parts are required":     {AdminToken: "a"},
		"AdminToken is required": {Parts: parts},
		"well-known":             {Parts: parts, AdminToken: devKey, DevKey: devKey},
	} {
		_, err := server.New(options)
		require.ErrorContains(t, err, says)
	}
	_, err := server.New(server.Options{Parts: parts, AdminToken: devKey, DevKey: devKey, AllowDevKey: true})
	require.NoError(t, err, "under dev it may be")
}

func TestHTTPServerHasLimits(t *testing.T) {
	t.Parallel()
	s := server.NewHTTPServer("127.0.0.1:0", http.NotFoundHandler())
	require.Equal(t, 5*time.Second, s.ReadHeaderTimeout)
	require.Equal(t, 64<<10, s.MaxHeaderBytes)
	require.NotZero(t, s.ReadTimeout)
	require.NotZero(t, s.WriteTimeout)
	require.NotZero(t, s.IdleTimeout)
}
