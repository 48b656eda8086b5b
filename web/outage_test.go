package web_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/web"
)

// internals are texts of PostgreSQL, Go and its packages, which no page may show.
var internals = []string{
	"SQLSTATE", "ERROR:", "FATAL:", "pq:", "pgx", "pgconn", "context deadline exceeded", "context canceled", "dial tcp",
	"connection refused", "closed pool", "i/o timeout", "%!", "&lt;nil&gt;", "runtime error", "*store.",
	"canceling statement", "lock timeout", "failed to connect", "no connection to",
	"connect to the database", "postrider_internal",
}

// safeLog is a log for concurrent requests.
type safeLog struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (l *safeLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// requirePlainPages requests pages and forms concurrently. None may show internals, and at least so many must fail.
func requirePlainPages(t *testing.T, b *dashboard, least int, paths ...string) {
	t.Helper()
	forms := map[string]url.Values{
		"/ui/new-topic":                            {"name": {"parcels"}},
		"/ui/subscriptions/orders/billing/pause":   {},
		"/ui/subscriptions/orders/billing/release": {},
		"/ui/deliveries/1/retry":                   {},
		"/ui/topics/orders/delete":                 {"name": {"orders"}},
	}
	type page struct {
		what     string
		response *httptest.ResponseRecorder
	}
	pages := make(chan page, len(paths)+len(forms))
	for _, path := range paths {
		go func() { pages <- page{path, b.request(http.MethodGet, path)} }()
	}
	for path, form := range forms {
		go func() { pages <- page{"POST " + path, b.post(path, form)} }()
	}
	failed := 0
	for range cap(pages) {
		p := <-pages
		for _, text := range internals {
			require.NotContains(t, p.response.Body.String(), text, p.what)
		}
		require.NotEqual(t, http.StatusNotFound, p.response.Code, p.what)
		if p.response.Code >= 500 {
			failed++
			require.NotEqual(t, http.StatusInternalServerError, p.response.Code, p.what)
		}
	}
	require.GreaterOrEqual(t, failed, least)
}

// Pages report an unavailable database; the log has the cause and its SQLSTATE.
func TestPagesDuringAnOutage(t *testing.T) {
	t.Parallel()
	log := &safeLog{}
	b := setup(t, func(o *web.Options) { o.Logger = slog.New(slog.NewJSONHandler(log, nil)) })
	b.hook(t)
	b.insert(t, deadLetter{topic: "orders", subscription: "billing"})
	paths := []string{
		"/ui/", "/ui/problems", "/ui/events", "/ui/deliveries", "/ui/deliveries/1", "/ui/batches", "/ui/dead-letters",
		"/ui/dead-letters/redeliver?topic=orders", "/ui/operations", "/ui/topics", "/ui/topics/orders", "/ui/subscriptions",
		"/ui/subscriptions/orders/billing", "/ui/subscriptions/orders/billing/edit", "/ui/policies", "/ui/jobs",
		"/ui/storage",
		"/ui/audit", "/ui/subscriptions/new?topic=orders", "/ui/topics/orders/keys", "/ui/users", "/ui/api-keys",
	}
	conn, err := b.Pool.Acquire(t.Context())
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(),
		`BEGIN; DO $$ BEGIN EXECUTE (SELECT 'LOCK TABLE ' || string_agg(format('%I.%I', schemaname, tablename), ', ')
		FROM pg_tables WHERE schemaname = 'postrider_internal'); END $$`)
	require.NoError(t, err)
	requirePlainPages(t, b, 8, paths[:8]...) // each waits for its lock, and six at a time have a connection
	require.Contains(t, log.buf.String(), `"sqlstate":"55P03"`)
	require.Contains(t, log.buf.String(), `"error":"`)
	_, err = conn.Exec(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	conn.Release()

	config := b.Pool.Config().ConnConfig.Copy()
	name := config.Database
	config.Database = "postgres"
	other, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	defer func() { _ = other.Close(t.Context()) }()
	_, err = other.Exec(t.Context(), "ALTER DATABASE "+pgx.Identifier{name}.Sanitize()+" ALLOW_CONNECTIONS false")
	require.NoError(t, err)
	_, err = other.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
	require.NoError(t, err)
	before := strings.Count(log.buf.String(), "\n")
	requirePlainPages(t, b, 16, paths...)
	require.Greater(t, strings.Count(log.buf.String(), "\n"), before)
}
