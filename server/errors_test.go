package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/testdb"
	"postrider/server"
)

func TestUnknownRoutes(t *testing.T) {
	t.Parallel()
	b := setup(t)
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
		rejection := b.manage(row.method, row.path, "").rejected(row.status, row.code)
		require.Contains(t, rejection.Message, row.path, name)
		require.Contains(t, rejection.Message, "/openapi.yaml", name)
	}
	require.NotEmpty(t, b.manage(http.MethodPost, "/v1/topics/orders", "").header.Get("Allow"))
	long := b.manage(http.MethodGet, "/"+string(bytes.Repeat([]byte("x"), 10_000)), "").rejected(404, "NotFound")
	require.Less(t, len(long.Message), 300)
}

// TestParametersOfTheWrongType: each error names the parameter, its value and what is allowed.
func TestParametersOfTheWrongType(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic("orders", `{"inputSchema":"CloudEventSchemaV1_0"}`)
	b.subscription("orders", "billing", queueMode) // consumers need one before their parameters are read
	spec, tried := readSpecification(t), 0
	for _, op := range operations(t) {
		for _, p := range op.Parameters {
			if name, is := strings.CutPrefix(p.Ref, "#/components/parameters/"); is {
				p = spec.Components.Parameters[name]
			}
			if p.Schema.Type != "integer" && p.Schema.Type != "boolean" {
				continue
			}
			tried++
			path := op.path + "?" + p.Name + "=wr%20ng"
			if p.In == "path" {
				path = strings.Replace(op.path, "/"+p.Example, "/wr%20ng", 1)
			}
			rejected := b.manage(op.method, path, "").rejected(400, "InvalidRequest")
			require.Regexp(t, "^"+p.Name+` must be (an integer|true or false).*, not "wr ng"$`, rejected.Message, path)
			require.Equal(t, []string{p.Name}, targets(rejected), path)
		}
	}
	require.Greater(t, tried, 15)
	twice := b.manage(http.MethodGet, "/v1/topics?limit=1&limit=2", "").rejected(400, "InvalidRequest")
	require.Equal(t, "limit must be given once, not 2 times", twice.Message)
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

func TestUnknownErrorsAreHidden(t *testing.T) {
	t.Parallel()
	log := &lines{}
	b := setup(t, func(o *server.Options) { o.Logger = slog.New(slog.NewJSONHandler(log, nil)) })
	_, err := b.db.Exec(t.Context(), "ALTER TABLE postrider_internal.topics RENAME TO moved_away")
	require.NoError(t, err)
	response := b.manage(http.MethodGet, "/v1/topics", "")
	rejection := response.rejected(500, "InternalError")
	require.NotContains(t, response.body, "topics", "nothing of the statement")
	require.NotContains(t, response.body, "42P01")
	id := regexp.MustCompile(`[A-Z2-7]{26}`).FindString(rejection.Message)
	require.NotEmpty(t, id)
	require.Contains(t, log.String(), id)
	require.Contains(t, log.String(), "42P01", "the operator sees the cause")
}

func TestPanicsBecomeResponses(t *testing.T) {
	t.Parallel()
	log := &lines{}
	b := setup(t, func(o *server.Options) {
		o.Logger = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		o.Ready = func(context.Context) error { panic("a secret cause") }
	})
	response := b.send(http.MethodGet, "/readyz", "")
	response.rejected(500, "InternalError")
	require.NotContains(t, response.body, "secret")
	require.Contains(t, log.String(), "a secret cause")
	require.Equal(t, 200, b.send(http.MethodGet, "/healthz", "").status)
}

func TestHealth(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var ready error
	b := setup(t, func(o *server.Options) {
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
	require.Equal(t, "ok", b.send(http.MethodGet, "/healthz", "").body)
	require.Equal(t, map[string]any{"ready": true}, b.send(http.MethodGet, "/readyz", "").json(200))
	become(server.NotReadyError("migrations are missing: run postrider migrate"))
	response := b.send(http.MethodGet, "/readyz", "")
	require.Equal(t, "migrations are missing: run postrider migrate", response.rejected(503, "NotReady").Message)
	require.Equal(t, "1", response.header.Get("Retry-After"))
	become(errors.New("dial tcp 10.1.2.3: password is wrong"))
	require.NotContains(t, b.send(http.MethodGet, "/readyz", "").rejected(503, "NotReady").Message, "10.1.2.3")
	require.Equal(t, "ok", b.send(http.MethodGet, "/healthz", "").body, "alive all the same")
}

func TestRequestsAreLoggedAtDebugOnly(t *testing.T) {
	t.Parallel()
	for level, want := range map[slog.Level]bool{slog.LevelInfo: false, slog.LevelDebug: true} {
		log := &lines{}
		b := setup(t, func(o *server.Options) {
			o.Logger = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: level}))
		})
		key := b.topic("orders", "")
		b.send(http.MethodPost, "/topics/orders/api/events?aeg-sas-key="+url.QueryEscape(key)+"&api-version=1", "[]",
			"X-Forwarded-For", "203.0.113.7").rejected(400, "InvalidRequest")
		require.Equal(t, want, bytes.Contains([]byte(log.String()), []byte(`"status":400`)))
		require.NotContains(t, log.String(), key, "no query, which may hold a secret")
		require.NotContains(t, log.String(), "203.0.113.7", "the log has the address of the peer")
	}
}

// relay is between a node and its database, so that a test can cut the connection.
type relay struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (r *relay) run(to string) {
	for {
		from, err := r.Accept()
		if err != nil {
			return
		}
		onward, err := net.Dial("tcp", to)
		if err != nil {
			_ = from.Close()
			continue
		}
		r.mu.Lock()
		r.conns = append(r.conns, from, onward)
		r.mu.Unlock()
		go func() { _, _ = io.Copy(onward, from) }()
		go func() { _, _ = io.Copy(from, onward) }()
	}
}

func (r *relay) cut() {
	_ = r.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		_ = c.Close()
	}
}

func TestOutage(t *testing.T) {
	t.Parallel()
	direct := testdb.Clone(t)
	u, err := url.Parse(direct)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	way := &relay{Listener: listener}
	go way.run(u.Host)
	t.Cleanup(way.cut)
	u.Host = listener.Addr().String()

	s, err := server.New(server.Options{
		Parts: openStore(t, u.String()).API(), AdminToken: adminToken, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	admin := []string{"Authorization", "Bearer " + adminToken}
	serve(t, s, http.MethodPut, "/v1/topics/orders", "", admin...).json(201)
	require.Equal(t, 200,
		serve(t, s, http.MethodPost, "/topics/orders/api/events", "["+gridEvent("1")+"]", admin...).status)
	serve(t, s, http.MethodGet, "/readyz", "").json(200)

	way.cut()
	for name, response := range map[string]response{
		"publishing": serve(t, s, http.MethodPost, "/topics/orders/api/events", "["+gridEvent("2")+"]",
			admin...),
		"publishing to an unknown topic": serve(t, s, http.MethodPost, "/topics/nothing/api/events", "["+gridEvent("2")+"]",
			admin...),
		"publishing with an unknown key": serve(t, s, http.MethodPost, "/topics/orders/api/events", "["+gridEvent("2")+"]",
			"aeg-sas-key", "unknown"),
		"listing topics": serve(t, s, http.MethodGet, "/v1/topics", "", admin...),
		"making a topic": serve(t, s, http.MethodPut, "/v1/topics/parcels", "", admin...),
		"making an event subscription": serve(t, s, http.MethodPut, "/v1/topics/orders/subscriptions/billing",
			`{"endpointUrl":"https://example.com"}`, admin...),
		"a policy that does not exist": serve(t, s, http.MethodGet, "/v1/policies/mine", "", admin...),
	} {
		require.Equal(t, 503, response.status, "%s: %s", name, response.body)
		response.rejected(503, "ServiceUnavailable")
		require.Equal(t,
			comparable(t, readSpecification(t).Components.Responses["Unavailable"].Content["application/json"].Example),
			comparable(t, response.value()), name)
		require.Equal(t, "1", response.header.Get("Retry-After"), name)
		require.NotContains(t, response.body, "127.0.0.1", name)
	}
	require.Equal(t, "the database does not respond",
		serve(t, s, http.MethodGet, "/readyz", "").rejected(503, "NotReady").Message)
	require.Equal(t, 200, serve(t, s, http.MethodGet, "/healthz", "").status)
}
