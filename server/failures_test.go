package server_test

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/testdb"
	"postrider/server"
)

// internals are texts of PostgreSQL, of Go and of its packages. No response may contain one.
var internals = []string{
	"SQLSTATE", "ERROR:", "FATAL:", "pq:", "pgx", "pgconn", "context deadline exceeded", "context canceled", "dial tcp",
	"connection refused", "connection reset", "i/o timeout", "EOF", "127.0.0.1", "postrider_internal", "%!", "<nil>",
	"strconv", "runtime error", "goroutine", "*store.", "store.", "server.", "json:", "syntax error", "violates",
	"relation",
	"canceling statement", "lock timeout", "failed to connect", "byte sequence",
}

func requireOwnWords(t *testing.T, what, body string) {
	t.Helper()
	for _, text := range internals {
		require.NotContains(t, body, text, what)
	}
}

// databaseRequests are requests that need the database, one of each kind.
func databaseRequests() [][3]string {
	list := [][3]string{
		{"POST", "/topics/orders/api/events", "[" + gridEvent("2") + "]"},
		{"POST", "/topics/nothing/api/events", "[" + gridEvent("2") + "]"},
		{"PUT", "/v1/topics/parcels", ""},
		{"DELETE", "/v1/topics/orders", ""},
		{"PUT", "/v1/topics/orders/subscriptions/audit", `{"endpointUrl":"https://example.com"}`},
		{"PATCH", "/v1/topics/orders/subscriptions/billing", `{"labels":["a"]}`},
		{"DELETE", "/v1/topics/orders/subscriptions/billing", ""},
		{"POST", "/v1/topics/orders/subscriptions/billing/pause", ""},
		{"POST", "/v1/deliveries/1/retryNow", ""},
		{"POST", "/v1/deadLetters/redeliver", `{"filter":{"topic":"orders"}}`},
		{"PUT", "/v1/users/anna", `{"role":"viewer","password":"correct horse battery"}`},
	}
	for _, path := range []string{
		"topics", "topics/orders", "topics/orders/subscriptions", "topics/orders/subscriptions/billing", "events",
		"deliveries",
		"deliveries/1", "batches", "batches/1", "deadLetters", "operations", "audit", "apiKeys", "users", "policies",
		"events/" + exampleEvent, "operations/" + exampleOperation, "deadLetters/" + exampleDeadLetter,
	} {
		list = append(list, [3]string{"GET", "/v1/" + path, ""})
	}
	return list
}

// failing is a server whose database is reached through a relay, with its log; settings are those of its sessions.
func failing(t *testing.T, settings string) (s *server.Server, db *pgx.Conn, way *relay, log *lines) {
	t.Helper()
	direct := testdb.Clone(t)
	db, err := pgx.Connect(t.Context(), direct)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close(t.Context()) })
	u, err := url.Parse(direct)
	require.NoError(t, err)
	if settings != "" {
		_, err = db.Exec(t.Context(), fmt.Sprintf(settings, pgx.Identifier{strings.TrimPrefix(u.Path, "/")}.Sanitize()))
		require.NoError(t, err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	way, log = &relay{Listener: listener}, &lines{}
	go way.run(u.Host)
	t.Cleanup(way.cut)
	u.Host = listener.Addr().String()
	query := u.Query()
	query.Set("pool_max_conns", "40") // requests that fail by a timeout fail at once, not one after the other
	u.RawQuery = query.Encode()
	s, err = server.New(server.Options{
		Parts: openStore(t, u.String()).API(), AdminToken: adminToken, Logger: slog.New(slog.NewJSONHandler(log, nil)),
		DefaultValidation: vouched,
	})
	require.NoError(t, err)
	manage := []string{"Authorization", "Bearer " + adminToken}
	serve(t, s, http.MethodPut, "/v1/topics/orders", "", manage...).json(201)
	serve(t, s, http.MethodPut, "/v1/topics/orders/subscriptions/billing", `{"endpointUrl":"https://example.com"}`,
		manage...).json(201)
	require.Equal(t, 200,
		serve(t, s, http.MethodPost, "/topics/orders/api/events", "["+gridEvent("1")+"]", manage...).status)
	return s, db, way, log
}

// requireUnavailable sends all requests at once. Most need what failed; no response has internals, or is InternalError.
func requireUnavailable(t *testing.T, s *server.Server) {
	t.Helper()
	var group sync.WaitGroup
	responses := make([]response, len(databaseRequests()))
	for i, r := range databaseRequests() {
		group.Go(func() {
			responses[i] = serve(t, s, r[0], r[1], r[2], "Authorization", "Bearer "+adminToken, "Content-Type",
				"application/json")
		})
	}
	group.Wait()
	unavailable := 0
	for i, r := range databaseRequests() {
		what := r[0] + " " + r[1] + ": " + responses[i].body
		requireOwnWords(t, what, responses[i].body)
		require.NotEqual(t, 500, responses[i].status, what)
		if responses[i].status == http.StatusServiceUnavailable {
			unavailable++
		}
	}
	require.Greater(t, unavailable, 15)
}

// TestResponsesHideInternals: errors of the database are in the log with their SQLSTATE, and in no response.
func TestResponsesHideInternals(t *testing.T) {
	t.Parallel()
	lock := func(t *testing.T, db *pgx.Conn) {
		t.Helper()
		_, err := db.Exec(t.Context(),
			`BEGIN; DO $$ BEGIN EXECUTE (SELECT 'LOCK TABLE ' || string_agg(format('%I.%I', schemaname, tablename), ', ')
			FROM pg_tables WHERE schemaname = 'postrider_internal'); END $$`)
		require.NoError(t, err)
	}
	for name, row := range map[string]struct {
		settings, state string
		fail            func(*testing.T, *pgx.Conn, *relay)
	}{
		"away":         {"", "", func(_ *testing.T, _ *pgx.Conn, way *relay) { way.cut() }},
		"lock timeout": {"", "55P03", func(t *testing.T, db *pgx.Conn, _ *relay) { t.Helper(); lock(t, db) }},
		"statement timeout": {
			"ALTER DATABASE %s SET statement_timeout = '1s'", "57014",
			func(t *testing.T, db *pgx.Conn, _ *relay) {
				t.Helper()
				lock(t, db)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, db, way, log := failing(t, row.settings)
			row.fail(t, db, way)
			requireUnavailable(t, s)
			if row.state != "" {
				require.Contains(t, log.String(), `"sqlstate":"`+row.state+`"`)
			}
			require.Contains(t, log.String(), `"msg":"a request failed in the database"`)
			require.Contains(t, log.String(), `"error":"`)
			require.LessOrEqual(t, strings.Count(log.String(), "a request failed in the database"), 8,
				"not a line for each request")
		})
	}
}

// TestRowsThatAnotherSessionHasLocked: requests for a locked row fail.
func TestRowsThatAnotherSessionHasLocked(t *testing.T) {
	t.Parallel()
	s, db, _, log := failing(t, "")
	_, err := db.Exec(t.Context(), "BEGIN; SELECT FROM postrider_internal.event_subscriptions FOR UPDATE")
	require.NoError(t, err)
	began := time.Now()
	response := serve(t, s, http.MethodPost, "/v1/topics/orders/subscriptions/billing/pause", "", "Authorization",
		"Bearer "+adminToken)
	response.rejected(503, "ServiceUnavailable")
	requireOwnWords(t, "pause", response.body)
	require.Less(t, time.Since(began), 20*time.Second)
	require.Contains(t, log.String(), `"sqlstate":"55P03"`)
}

// TestInputThatPostgreSQLRejects: the response reports a mistake of the client.
func TestInputThatPostgreSQLRejects(t *testing.T) {
	t.Parallel()
	log := &lines{}
	b := setup(t, func(o *server.Options) { o.Logger = slog.New(slog.NewJSONHandler(log, nil)) })
	key := b.topic("orders", "")
	b.subscription("orders", "billing", `{"endpointUrl":"https://example.com"}`)
	event := strings.Replace(gridEvent("1"), `"subject":"orders/1"`, `"subject":"a\u0000b"`, 1)
	for name, response := range map[string]response{
		"NUL in an event": b.publish("orders", key, "["+event+"]"),
		"NUL in data": b.publish("orders", key,
			"["+strings.Replace(gridEvent("1"), `{"n":`, `{"z":"\u0000","n":`, 1)+"]"),
		"a lone surrogate":  b.publish("orders", key, "["+strings.Replace(gridEvent("1"), `orders/1`, `\ud800`, 1)+"]"),
		"a year beyond all": b.publish("orders", key, "["+strings.Replace(gridEvent("1"), "2026-", "9999-", 1)+"]"),
		"NUL in a label": b.manage("PUT", "/v1/topics/orders/subscriptions/audit",
			`{"endpointUrl":"https://example.com","labels":["a\u0000"]}`),
		"NUL in a filter": b.manage("PUT", "/v1/topics/orders/subscriptions/audit",
			`{"endpointUrl":"https://example.com","filter":{"subjectBeginsWith":"\u0000"}}`),
		"NUL in a topic":         b.manage("PUT", "/v1/topics/a%00b", ""),
		"NUL in a path":          b.manage("GET", "/v1/topics/a%00b", ""),
		"NUL in a key's path":    b.manage("GET", "/v1/apiKeys/a%00b", ""),
		"NUL in a user's path":   b.manage("GET", "/v1/users/a%00b", ""),
		"NUL in a policy's path": b.manage("GET", "/v1/policies/a%00b", ""),
		"NUL in a user":          b.manage("PUT", "/v1/users/a%00b", `{"role":"viewer","password":"correct horse battery"}`),
		"NUL in a key":           b.manage("POST", "/v1/apiKeys", `{"name":"a\u0000","scope":"read"}`),
		"NUL in a subject":       b.manage("POST", "/v1/topics/orders/eraseSubject", `{"subject":"a\u0000"}`),
		"bytes that are no text": b.manage("GET", "/v1/topics/%ff", ""),
		"no integer":             b.manage("GET", "/v1/deliveries/99999999999999999999", ""),
		"a status beyond all":    b.manage("GET", "/v1/deadLetters?lastStatus=99999999999", ""),
		"a time beyond all":      b.manage("GET", "/v1/events?publishedFrom=0000-01-01T00:00:00Z", ""),
		"the last time":          b.manage("GET", "/v1/deliveries?publishedUntil=9999-12-31T23:59:59.999999999Z", ""),
		"a redelivery of NUL":    b.manage("POST", "/v1/deadLetters/redeliver", `{"filter":{"subject":"a\u0000"}}`),
		"a purge by a NUL":       b.manage("POST", "/v1/deadLetters/purge", `{"filter":{"topic":"a\u0000"}}`),
	} {
		requireOwnWords(t, name, response.body)
		require.Less(t, response.status, 500, "%s: %s", name, response.body)
	}
}
