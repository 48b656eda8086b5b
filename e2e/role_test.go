package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
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
	for _, n := range []*nodeProcess{api, worker} {
		code := n.stop()
		require.Zero(t, code)
		require.Empty(t, complaints(n))
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
		status, text, err := call(t.Context(), row.method, n.api+row.path, "", "Authorization", "Bearer "+testAdminToken)
		require.NoError(t, err)
		require.Equal(t, row.status, status, "%s %s: %s", row.method, row.path, text)
		if row.status == http.StatusNotFound {
			require.Contains(t, text, "this node only delivers (--role worker)")
		}
	}
}

func TestAWorkerNeedsNoAdminToken(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	env := append(db.env(), "POSTRIDER_ENCRYPTION_KEY="+testEncryptionKey)
	for _, row := range []struct {
		role    string
		printed bool
	}{{"worker", false}, {"api", true}, {"all", true}} {
		t.Run(row.role, func(t *testing.T) {
			t.Parallel()
			n := startProcess(t, append(env, "POSTRIDER_ROLE="+row.role), program, "serve", "--listen", "127.0.0.1:0")
			require.NotEmpty(t, nodeNameOf(n))
			if row.printed {
				require.Contains(t, n.stderr.String(), "Admin token of this process")
			} else {
				require.NotContains(t, n.stderr.String(), "Admin token")
			}
		})
	}
}
