package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"postrider/internal/node"
	"postrider/internal/testnode"
	"postrider/server"
)

// internals are texts of PostgreSQL, of Go and of its packages. No response may contain one.
var internals = []string{
	"SQLSTATE", "ERROR:", "FATAL:", "pq:", "pgx", "pgconn", "context deadline exceeded", "context canceled", "dial tcp",
	"connection refused", "connection reset", "i/o timeout", "EOF", "127.0.0.1", "postrider_internal", "%!", "<nil>",
	"strconv", "runtime error", "goroutine", "*store.", "store.", "server.", "json:", "syntax error", "violates",
	"relation",
	"canceling statement", "lock timeout", "failed to connect", "no connection to", "connect to the database",
	"byte sequence",
}

func requireNoInternals(t *testing.T, what, body string) {
	t.Helper()
	for _, text := range internals {
		require.NotContains(t, body, text, what)
	}
}

// databaseRequests are requests that need the database, one of each kind.
func databaseRequests() [][3]string {
	list := [][3]string{
		{"POST", "/topics/orders/api/events", gridEvents("2")},
		{"POST", "/topics/nothing/api/events", gridEvents("2")},
		{"PUT", "/v1/topics/parcels", ""},
		{"DELETE", "/v1/topics/orders", ""},
		{"PUT", "/v1/topics/orders/subscriptions/audit", `{"endpointUrl":"https://example.com"}`},
		{"PATCH", billing, `{"labels":["a"]}`},
		{"DELETE", billing, ""},
		{"POST", billing + "/pause", ""},
		{"POST", "/v1/deliveries/1/retryNow", ""},
		{"POST", "/v1/deadLetters/redeliver", `{"filter":{"topic":"orders"}}`},
		{"PUT", "/v1/users/anna", `{"role":"viewer","password":"correct horse battery"}`},
	}
	for _, path := range []string{
		"topics", "topics/orders", "topics/orders/subscriptions", "topics/orders/subscriptions/billing", "events",
		"deliveries", "deliveries/1", "batches", "batches/1", "deadLetters", "operations", "audit", "apiKeys", "users",
		"policies", "policies/mine", "events/" + exampleEvent, "operations/" + exampleOperation,
		"deadLetters/" + exampleDeadLetter,
	} {
		list = append(list, [3]string{"GET", "/v1/" + path, ""})
	}
	return list
}

// dialer makes the connections of a node to its database, which a test can cut.
type dialer struct {
	net.Dialer
	mu    sync.Mutex
	conns []net.Conn
	isCut bool
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isCut {
		address = "127.0.0.1:1" // connection refused
	}
	conn, err := d.DialContext(ctx, network, address)
	if err == nil {
		d.conns = append(d.conns, conn)
	}
	return conn, err
}

func (d *dialer) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.isCut = true
	for _, c := range d.conns {
		_ = c.Close()
	}
}

// failing is a server with its own connections, and its log. setting is one of its sessions.
func failing(t *testing.T, setting, value string) (s *service, way *dialer, log *lines) {
	t.Helper()
	s, key := withBilling(t)
	s.events(key, "1")
	way, log = &dialer{}, &lines{}
	config := s.db.Config()
	config.MaxConns = 40 // requests that fail by a timeout fail at once, not one after the other
	config.ConnConfig.DialFunc = way.dial
	if setting != "" {
		config.ConnConfig.RuntimeParams[setting] = value
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	tn := testnode.Open(t, s.tn.URL, node.Options{Node: "test", Pool: pool})
	beyond := &service{t: t, tn: tn, store: tn.System, db: s.db}
	return beyond.with(func(o *server.Options) { o.Logger = slog.New(slog.NewJSONHandler(log, nil)) }), way, log
}

// lock locks every table until the test ends.
func (s *service) lock() {
	tables := s.tn.Text(s.t, `SELECT string_agg(format('%I.%I', schemaname, tablename), ', ')
		FROM pg_tables WHERE schemaname = 'postrider_internal'`)
	blocker, _ := s.lockTables(tables)
	s.t.Cleanup(func() { _ = blocker.Rollback(context.Background()) })
}

// While the database is unavailable, locked or slow, no response is InternalError or has internals of PostgreSQL or Go;
// the log has the SQLSTATE.
func TestOutage(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		setting, value, state string
		fail                  func(*service, *dialer)
	}{
		"unavailable":       {"", "", "", func(_ *service, way *dialer) { way.cut() }},
		"lock timeout":      {"lock_timeout", "100ms", "55P03", func(s *service, _ *dialer) { s.lock() }},
		"statement timeout": {"statement_timeout", "1s", "57014", func(s *service, _ *dialer) { s.lock() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, way, log := failing(t, row.setting, row.value)
			s.get("/readyz").json(200)
			row.fail(s, way)
			var group sync.WaitGroup
			requests := databaseRequests()
			if row.setting == "statement_timeout" {
				requests = requests[2:] // a publish is repeated for 25 s
			}
			responses := make([]response, len(requests))
			for i, r := range requests {
				group.Go(func() {
					responses[i] = s.send(r[0], r[1], r[2], "Authorization", "Bearer "+adminToken, "Content-Type", "application/json")
				})
			}
			group.Wait()
			if row.setting == "" {
				responses = append(responses, s.publish("orders", "unknown", gridEvents("2")))
			}
			unavailable := 0
			for i, a := range responses {
				what := fmt.Sprint(i, ": ", a.body)
				requireNoInternals(t, what, a.body)
				require.NotEqual(t, 500, a.status, what)
				if a.status != http.StatusServiceUnavailable {
					continue
				}
				unavailable++
				require.Equal(t, "1", a.header.Get("Retry-After"), what)
				example := readSpecification(t).Components.Responses["Unavailable"].Content["application/json"].Example
				if row.state == "" {
					require.Equal(t, comparable(t, example), comparable(t, a.value()), what)
				}
			}
			require.Greater(t, unavailable, 15)
			require.Contains(t, log.String(), `"msg":"a request failed in the database"`)
			require.Contains(t, log.String(), `"error":"`)
			require.Less(t, strings.Count(log.String(), "a request failed in the database"), unavailable,
				"not a line for each request")
			if row.state == "" {
				require.Equal(t, "the database does not respond", s.get("/readyz").rejected(503, "NotReady").Message)
			} else {
				require.Contains(t, log.String(), `"sqlstate":"`+row.state+`"`)
			}
			s.get("/healthz").is(200)
		})
	}
}

// TestInputThatPostgreSQLRejects: the response reports a mistake of the client.
func TestInputThatPostgreSQLRejects(t *testing.T) {
	t.Parallel()
	s, key := withBilling(t)
	const audit = "/v1/topics/orders/subscriptions/audit"
	for name, response := range map[string]response{
		"NUL in an event":   s.publish("orders", key, strings.Replace(gridEvents("1"), `"orders/1"`, `"a\u0000b"`, 1)),
		"a lone surrogate":  s.publish("orders", key, strings.Replace(gridEvents("1"), `orders/1`, `\ud800`, 1)),
		"a year beyond all": s.publish("orders", key, strings.Replace(gridEvents("1"), "2026-", "9999-", 1)),
		"NUL in a label":    s.put(audit, `{"endpointUrl":"https://example.com","labels":["a\u0000"]}`),
		"NUL in a topic":    s.put("/v1/topics/a%00b", ""),
		"NUL in a user":     s.put("/v1/users/a%00b", `{"role":"viewer","password":"correct horse battery"}`),
		"NUL in a key":      s.post("/v1/apiKeys", `{"name":"a\u0000","scope":"read"}`),
		"NUL in a subject":  s.post("/v1/topics/orders/eraseSubject", `{"subject":"a\u0000"}`),
		"no integer":        s.get("/v1/deliveries/99999999999999999999"),
		"a huge status":     s.get("/v1/deadLetters?lastStatus=99999999999"),
		"a time beyond all": s.get("/v1/events?publishedFrom=0000-01-01T00:00:00Z"),
		"the last time":     s.get("/v1/deliveries?publishedUntil=9999-12-31T23:59:59.999999999Z"),
		"a purge by a NUL":  s.post("/v1/deadLetters/purge", `{"filter":{"topic":"a\u0000"}}`),
		"a huge number":     s.get("/v1/deadLetters?search=data.a%20%3D%201e131073"),
	} {
		requireNoInternals(t, name, response.body)
		require.Less(t, response.status, 500, "%s: %s", name, response.body)
	}
	for path, body := range map[string]string{
		"/v1/deadLetters/purge": `{"filter":{"topic":"a\u0000"}}`, "/v1/deliveries/cancel": `{"filter":{"topic":"a\u0000"}}`,
	} {
		require.Equal(t, "filter.topic", s.post(path, body).rejected(400, "InvalidRequest").Details[0].Target, path)
	}
}
