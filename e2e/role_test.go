package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const leasesQuery = "SELECT count(*) FROM postrider_internal.nodes"

// An api node publishes and never delivers; a worker delivers what it finds and serves only its health endpoints.
func TestRoles(t *testing.T) {
	t.Parallel()
	db, sink := migratedDatabase(t), newGate(t)
	sink.open()
	api := startNode(t, db, "--role", "api")
	require.Positive(t,
		one[int](db, "SELECT count(*) FROM pg_inherits WHERE inhparent = 'postrider_internal.events'::regclass"),
		"it makes the partitions it needs")
	require.Zero(t, one[int](db, leasesQuery), "it takes no job and needs no lease")
	key := api.topic("orders")
	api.subscribe("orders", "billing", sink.url)
	api.publish("orders", key, cloudEvent("e1"))
	api.publish("orders", key, cloudEvent("e2"))
	require.Never(t, func() bool { return len(sink.arrivalsSoFar()) > 0 }, patience/40, pollTime, "no node delivers")
	require.Equal(t, 2, one[int](db, "SELECT count(*) FROM postrider.deliveries WHERE state = 'pending' AND attempts = 0"))

	worker := startNode(t, db, "--role", "worker")
	db.drained()
	requireEndedOnce(t, db)
	require.ElementsMatch(t, []string{"e1", "e2"}, sink.arrivalsSoFar())
	require.Equal(t, []string{worker.name}, one[[]string](db, "SELECT array_agg(id) FROM postrider_internal.nodes"))
	requireHealthOnly(t, worker)

	api.manage(http.StatusCreated, http.MethodPut, "/v1/topics/orders/subscriptions/validated",
		fmt.Sprintf(`{"endpointUrl":%q}`, permits(t)))
	require.Equal(t, "Succeeded",
		one[string](db, "SELECT provisioning_state FROM postrider.event_subscriptions WHERE subscription = 'validated'"),
		"the worker sent the handshake, the other waited")

	api.publish("orders", key, cloudEvent("e3"))
	db.drained()
	require.ElementsMatch(t, []string{"e1", "e2", "e3"}, sink.arrivalsSoFar())
	for _, n := range []*nodeProcess{worker, api} {
		require.Empty(t, complaints(n))
		if n == api {
			requireSecurityHeaders(t, api, key)
		}
		require.Zero(t, n.stop())
	}
	require.Zero(t, one[int](db, leasesQuery))
}

// permits is an endpoint that grants permission to each client.
func permits(t *testing.T) string {
	t.Helper()
	e := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("WebHook-Allowed-Origin", "*") }))
	t.Cleanup(e.Close)
	return e.URL
}

func requireHealthOnly(t *testing.T, n *nodeProcess) {
	t.Helper()
	for _, row := range []struct {
		method, path string
		status       int
	}{
		{http.MethodGet, "/healthz", http.StatusOK},
		{http.MethodGet, "/readyz", http.StatusOK},
		{http.MethodGet, "/metrics", http.StatusOK},
		{http.MethodPost, "/healthz", http.StatusNotFound},
		{http.MethodGet, "/v1/topics", http.StatusNotFound},
		{http.MethodPost, "/topics/orders/api/events", http.StatusNotFound},
		{http.MethodGet, "/ui/", http.StatusNotFound},
		{http.MethodGet, "/openapi.yaml", http.StatusNotFound},
		{http.MethodGet, "/openapi", http.StatusNotFound},
	} {
		status, text := guarded(t, n, row.method, row.path, "", "Authorization", "Bearer "+testAdminToken)
		require.Equal(t, row.status, status, "%s %s: %s", row.method, row.path, text)
		if row.status == http.StatusNotFound {
			require.Contains(t, text, "this node only delivers (--role worker)")
		}
	}
}

// guarded makes a request. Every response forbids sniffing and frames, and is no page unless it is one of ours.
func guarded(t *testing.T, n *nodeProcess, method, path, body string, headers ...string) (status int, text string) {
	t.Helper()
	direct := &http.Client{Transport: caller.Transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	response, text, err := send(t.Context(), direct, method, n.api+path, body, headers...)
	require.NoError(t, err)
	where := method + " " + path + " " + response.Status
	require.Equal(t, "nosniff", response.Header.Get("X-Content-Type-Options"), where)
	require.Equal(t, "no-referrer", response.Header.Get("Referrer-Policy"), where)
	require.Contains(t, response.Header.Get("Content-Security-Policy"), "default-src 'none'", where)
	require.Contains(t, response.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'", where)
	require.Empty(t, response.Header.Get("Access-Control-Allow-Origin"), where)
	if strings.HasPrefix(response.Header.Get("Content-Type"), "text/html") && response.Header.Get("Location") == "" {
		require.True(t, path == "/openapi" || strings.HasPrefix(path, "/ui"), where)
	}
	return response.StatusCode, text
}

func requireSecurityHeaders(t *testing.T, n *nodeProcess, key string) {
	t.Helper()
	for _, path := range []string{
		"/", "/healthz", "/readyz", "/metrics", "/openapi", "/openapi/", "/openapi.yaml", "/v1/topics", "/v1/topics/unknown",
		"/v1/deadLetters?cursor=x", "/topics/orders/api/events", "/topics/orders:publish", "/ui", "/ui/", "/ui/sign-in",
		"/ui/static/nothing.js", "/ui/%2e%2e/v1/topics", "//v1/topics", "/v1/../ui/", "/v1%2ftopics", "/nowhere",
	} {
		for _, method := range []string{
			http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions,
			http.MethodTrace, "NONSENSE",
		} {
			guarded(t, n, method, path, "", "Origin", "https://example.com")
			guarded(t, n, method, path, "{", "Authorization", "Bearer "+testAdminToken, "Content-Type", "application/json")
		}
	}
	for _, row := range [][3]string{
		{strings.Repeat(" ", 2<<20), "Content-Type", "application/json"}, {"x", "Content-Encoding", "gzip"},
	} {
		guarded(t, n, http.MethodPost, "/topics/orders/api/events", row[0], "aeg-sas-key", key, row[1], row[2])
	}
	for range 40 { // more than may be guessed
		guarded(t, n, http.MethodPost, "/topics/orders/api/events", "", "aeg-sas-key", "wrong")
	}
}
