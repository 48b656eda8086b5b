package server_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/server"
)

func TestUnknownRoutes(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for name, row := range map[string]struct {
		method, path string
		status       int
		code         string
	}{
		"nothing there":          {"GET", "/v2/topics", 404, "NotFound"},
		"the root":               {"GET", "/", 404, "NotFound"},
		"a slash too many":       {"GET", "/v1/topics/", 404, "NotFound"},
		"the wrong method":       {"GET", "/topics/orders/api/events", 405, "MethodNotAllowed"},
		"another wrong method":   {"POST", "/v1/topics/orders", 405, "MethodNotAllowed"},
		"under /v1 with a token": {"GET", "/v1/nothing", 404, "NotFound"},
	} {
		rejection := s.manage(row.method, row.path, "").rejected(row.status, row.code)
		require.Contains(t, rejection.Message, row.path, name)
		require.Contains(t, rejection.Message, "/openapi.yaml", name)
	}
	require.Contains(t, s.get("/").rejected(404, "NotFound").Message, "the dashboard is at /ui/")
	require.NotEmpty(t, s.post("/v1/topics/orders", "").header.Get("Allow"))
	long := s.get("/"+string(bytes.Repeat([]byte("x"), 10_000))).rejected(404, "NotFound")
	require.Less(t, len(long.Message), 300)
}

// lines is a log that tests read.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// all is the option that writes all levels to the log.
func (l *lines) all(o *server.Options) {
	o.Logger = slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func TestUnknownErrorsAreHidden(t *testing.T) {
	t.Parallel()
	log := &lines{}
	s := setup(t, log.all, func(o *server.Options) {
		o.Ready = func(context.Context) error { panic("a secret cause") }
	})
	s.tn.Exec(t, "ALTER TABLE postrider_internal.topics RENAME TO moved_away")
	response := s.get("/v1/topics")
	rejection := response.rejected(500, "InternalError")
	require.NotContains(t, response.body, "topics", "nothing of the statement")
	require.NotContains(t, response.body, "42P01")
	id := regexp.MustCompile(`[A-Z2-7]{26}`).FindString(rejection.Message)
	require.NotEmpty(t, id)
	require.Contains(t, log.String(), id)
	require.Contains(t, log.String(), "42P01", "the operator sees the cause")

	response = s.send(http.MethodGet, "/readyz", "")
	response.rejected(500, "InternalError")
	require.NotContains(t, response.body, "secret")
	require.Contains(t, log.String(), "a secret cause", "of a panic")
}

func TestHealth(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var ready error
	s := setup(t, func(o *server.Options) {
		o.Ready = func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			return ready
		}
	})
	become := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		ready = err
	}
	require.Equal(t, "ok", s.send(http.MethodGet, "/healthz", "").body)
	require.Equal(t, map[string]any{"ready": true}, s.send(http.MethodGet, "/readyz", "").json(200))
	become(server.NotReadyError("migrations are missing: run postrider migrate"))
	response := s.send(http.MethodGet, "/readyz", "")
	require.Equal(t, "migrations are missing: run postrider migrate", response.rejected(503, "NotReady").Message)
	require.Equal(t, "1", response.header.Get("Retry-After"))
	become(errors.New("dial tcp 10.1.2.3: password is wrong"))
	require.NotContains(t, s.send(http.MethodGet, "/readyz", "").rejected(503, "NotReady").Message, "10.1.2.3")
	require.Equal(t, "ok", s.send(http.MethodGet, "/healthz", "").body, "alive all the same")
}

func TestRequestsAreLoggedAtDebugOnly(t *testing.T) {
	t.Parallel()
	node := setup(t)
	key := node.topic("orders", "")
	for level, want := range map[slog.Level]bool{slog.LevelInfo: false, slog.LevelDebug: true} {
		log := &lines{}
		s := node.with(func(o *server.Options) {
			o.Logger = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: level}))
		})
		s.send(http.MethodPost, "/topics/orders/api/events?aeg-sas-key="+url.QueryEscape(key)+"&api-version=1", "[]",
			"X-Forwarded-For", "203.0.113.7").rejected(400, "InvalidRequest")
		require.Equal(t, want, bytes.Contains([]byte(log.String()), []byte(`"status":400`)))
		require.NotContains(t, log.String(), key, "no query, which may hold a secret")
		require.NotContains(t, log.String(), "203.0.113.7", "the log has the address of the peer")
	}
}

// A name that nothing can have is unknown, and the message says what it would name.
func TestUnknownObjectsHaveTheirNoun(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", "")
	for request, noun := range map[string]string{
		"GET /v1/topics/%00": "topic", "GET /v1/policies/%00": "retry policy",
		"GET /v1/queries/%00": "query", "POST /v1/queries/%00/run": "query", "DELETE /v1/queries/%00": "query",
		"GET /v1/users/%00": "user", "DELETE /v1/apiKeys/%00": "API key", "GET /v1/operations/%00": "operation",
		"GET /v1/deadLetters/%00": "dead letter",
	} {
		method, path, _ := strings.Cut(request, " ")
		message := s.manage(method, path, "").rejected(404, "NotFound").Message
		require.Contains(t, message, noun+` "\x00" does not exist`, request)
	}
	require.Equal(t, `topic "orders" has no event subscription "\x00"`,
		s.get("/v1/topics/orders/subscriptions/%00").rejected(404, "NotFound").Message)
}
