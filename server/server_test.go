package server_test

import (
	"context"
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

	"postrider/internal/catalog"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testdb"
	"postrider/internal/testnode"
	"postrider/server"
	"postrider/server/api"
)

func TestMain(m *testing.M) { os.Exit(testdb.Run(m, testnode.Migrate)) }

const (
	adminToken = "the-admin-token"
	devKey     = "ZGV2IGtleSBkZXYga2V5IGRldiBrZXkgZGV2IGtleSE="
)

// openStore is one node's parts, running until the test ends.
func openStore(t *testing.T, url string) *node.System { return openWorkers(t, url, 0) }

// openWorkers is openStore with workers for an engine.
func openWorkers(t *testing.T, url string, workers int) *node.System {
	t.Helper()
	sealer, err := postgres.NewSealer(testnode.Key)
	require.NoError(t, err)
	s, err := node.New(t.Context(), node.Options{
		Pool: testdb.Pool(t, url), Sealer: sealer, Logger: slog.New(slog.DiscardHandler), Node: "test", MaxWorkers: workers,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return s
}

// These tests skip validation; see validation_test.go.
func vouched(string) catalog.EndpointValidation { return catalog.ValidationSkip }

// bundle is a server with its own database.
type bundle struct {
	t        *testing.T
	dbURL    string
	url      string
	store    *node.System
	server   *server.Server
	counters *server.Counters
	db       *pgxpool.Pool
}

func setup(t *testing.T, change ...func(*server.Options)) *bundle {
	return setupWorkers(t, 0, change...)
}

// setupWorkers is setup with workers for an engine.
func setupWorkers(t *testing.T, workers int, change ...func(*server.Options)) *bundle {
	t.Helper()
	b := &bundle{t: t, dbURL: testdb.New(t)}
	b.store = openWorkers(t, b.dbURL, workers)
	b.counters = server.NewCounters()
	options := server.Options{
		Counters: b.counters,
		Parts:    b.store.API(), AdminToken: adminToken, DevKey: devKey, Logger: slog.New(slog.DiscardHandler),
		DefaultValidation: vouched, ValidationWait: time.Millisecond,
		Metrics: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
	}
	for _, c := range change {
		c(&options)
	}
	var err error
	b.server, err = server.New(options)
	require.NoError(t, err)
	listener := httptest.NewServer(b.server.Handler())
	t.Cleanup(listener.Close)
	b.url = listener.URL
	b.db = b.store.DB.Pool
	return b
}

// Responses to administrators are never cached.
func TestResponsesToAdministratorsAreNotCached(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic("orders", "")
	for _, path := range []string{"/v1/topics", "/v1/topics/orders", "/v1/topics/never", "/v1/nothing", "/v1"} {
		require.Equal(t, "no-store", b.manage(http.MethodGet, path, "").header.Get("Cache-Control"), path)
		require.Equal(t, "no-store", b.send(http.MethodGet, path, "").header.Get("Cache-Control"), path)
	}
	require.Equal(t, "no-store", b.manage(http.MethodPost, "/v1/topics", "").header.Get("Cache-Control"))
	require.Empty(t, b.send(http.MethodGet, "/openapi.yaml", "").header.Get("Cache-Control"))
}

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
func (b *bundle) send(method, path, body string, headers ...string) response {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	require.NoError(b.t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	got, err := testClient.Do(r)
	require.NoError(b.t, err)
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	require.NoError(b.t, err)
	requireListed(b.t, method, path, got.StatusCode)
	if got.StatusCode == http.StatusConflict {
		var conflict api.ErrorResponse
		require.NoError(b.t, json.Unmarshal(text, &conflict))
		require.Contains(b.t, readSpecification(b.t).Components.Schemas["ConflictCode"].Enum, conflict.Error.Code)
	}
	return response{b.t, got.StatusCode, got.Header, string(text)}
}

// manage makes a request with the admin token.
func (b *bundle) manage(method, path, body string) response {
	b.t.Helper()
	return b.send(method, path, body, "Authorization", "Bearer "+adminToken)
}

// topic creates a topic and returns its first key.
func (b *bundle) topic(name, settings string) string {
	b.t.Helper()
	return b.manage(http.MethodPut, "/v1/topics/"+name, settings).json(http.StatusCreated)["key1"].(string)
}

func (b *bundle) subscription(topic, name, settings string) {
	b.t.Helper()
	b.manage(http.MethodPut, "/v1/topics/"+topic+"/subscriptions/"+name, settings).json(http.StatusCreated)
}

// publish posts to a topic in the Event Grid schema unless headers say otherwise.
func (b *bundle) publish(topic, key, body string, headers ...string) response {
	b.t.Helper()
	all := append([]string{"Content-Type", "application/json", "aeg-sas-key", key}, headers...)
	return b.send(http.MethodPost, "/topics/"+topic+"/api/events?api-version=2018-01-01", body, all...)
}

// count queries a number.
func (b *bundle) count(query string, args ...any) (n int) {
	b.t.Helper()
	require.NoError(b.t, b.db.QueryRow(b.t.Context(), query, args...).Scan(&n))
	return n
}

// change changes exactly one row without the server.
func (b *bundle) change(statement string, args ...any) {
	b.t.Helper()
	tag, err := b.db.Exec(b.t.Context(), statement, args...)
	require.NoError(b.t, err)
	require.Equal(b.t, int64(1), tag.RowsAffected())
}

func (b *bundle) rows(query string, args ...any) []map[string]any {
	b.t.Helper()
	rows, err := b.db.Query(b.t.Context(), query, args...)
	require.NoError(b.t, err)
	list, err := pgx.CollectRows(rows, pgx.RowToMap)
	require.NoError(b.t, err)
	return list
}

// json requires the status and reads the body.
func (a response) json(status int) map[string]any {
	a.t.Helper()
	require.Equal(a.t, status, a.status, a.body)
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

// cloudEvent is a valid CloudEvent.
func cloudEvent(id string) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/shop","type":"shop.order.placed","subject":"orders/%s",`+
		`"time":"2026-11-20T09:30:00Z","data":{"n":1.50}}`, id, id)
}

func TestNewRejectsInvalidOptions(t *testing.T) {
	t.Parallel()
	s := openStore(t, testdb.Clone(t))
	for name, row := range map[string]struct {
		options server.Options
		says    string
	}{
		"no store":       {server.Options{AdminToken: "a"}, "Store is required"},
		"no admin token": {server.Options{Parts: s.API()}, "AdminToken is required"},
		"the admin token is the well-known key": {
			server.Options{Parts: s.API(), AdminToken: devKey, DevKey: devKey}, "well-known",
		},
	} {
		_, err := server.New(row.options)
		require.ErrorContains(t, err, row.says, name)
	}
	_, err := server.New(server.Options{Parts: s.API(), AdminToken: devKey, DevKey: devKey, AllowDevKey: true})
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
