package e2e

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/pgdev"
)

// A dump taken under load is restored into another cluster, as docs/operate/backup-and-upgrade.md says, and served:
// deliveries that were pending at that moment are delivered, no others are, and all encrypted values can be read with
// the same encryption key.
func TestBackupIsRestoredAndServed(t *testing.T) {
	t.Parallel()
	server, db := ownCluster(t)
	n, sinks := startNode(t, db), map[string]*gate{}
	key := n.topic("orders")
	for _, name := range []string{"delivered", "in-flight", "held"} {
		sinks[name] = newGate(t)
		n.subscribe("orders", name, sinks[name].url)
	}
	sinks["delivered"].open()
	n.subscribe("orders", "rejected", endpointWith(t, http.StatusBadRequest)) // and no event is retried
	n.manage(http.StatusOK, http.MethodPost, "/v1/topics/orders/subscriptions/held/pause", "")
	n.publish("orders", key, cloudEvents("e", 5))
	const letters = "SELECT count(*) FROM postrider.dead_letters"
	eventually(t, "five each are delivered, in flight, held and dead", func() bool {
		return sinks["in-flight"].held() == 5 && one[int](db, letters) == 5 && one[int](db, unfinishedQuery) == 10 &&
			one[int](db, runningQuery, n.name) == 5
	})

	file := filepath.Join(t.TempDir(), "postrider.dump")
	pgTool(t, server, "pg_dump", "--format=custom", "--file="+file, db.url)
	n.kill()
	restored := restore(t, file)
	require.Equal(t, 10, one[int](restored, unfinishedQuery))
	require.True(t, one[bool](restored, "SELECT has_table_privilege('postrider_reader', 'postrider.deliveries', "+
		"'SELECT') AND NOT has_schema_privilege('postrider_reader', 'postrider_internal', 'USAGE')"))

	m := startNode(t, restored)
	sinks["in-flight"].open()
	sinks["held"].open()
	eventually(t, "what was in flight is delivered", func() bool { return one[int](restored, unfinishedQuery) == 5 })
	require.Empty(t, sinks["held"].arrivalsSoFar(), "it is on hold still")
	m.manage(http.StatusOK, http.MethodPost, "/v1/topics/orders/subscriptions/held/resume", "")
	restored.drained()
	// those in flight had been sent by the node that was killed
	for name, times := range map[string]int{"delivered": 1, "in-flight": 2, "held": 1} {
		require.Len(t, sinks[name].arrivalsSoFar(), 5, name)
		for _, id := range sinks[name].arrivalsSoFar() {
			require.Equal(t, times, sinks[name].times(id), "%s %s", name, id)
		}
	}
	require.Equal(t, 5, one[int](restored, letters))
	require.Equal(t, 15, one[int](restored, "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered'"))

	m.publish("orders", key, cloudEvent("after")) // the topic's key opens it, and no id is given twice
	restored.drained()
	require.Equal(t, 6, one[int](restored, letters))
	require.Len(t, sinks["delivered"].arrivalsSoFar(), 6)
}

// endpointWith is an endpoint that always responds with the status.
func endpointWith(t *testing.T, status int) string {
	t.Helper()
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	t.Cleanup(e.Close)
	return e.URL
}

// times is how often the event arrived.
func (g *gate) times(id string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.arrivals[id])
}

// restore makes a new cluster, and what docs/operate/backup-and-upgrade.md says in it.
func restore(t *testing.T, file string) *database {
	t.Helper()
	server, err := pgdev.Start(t.Context(), pgdev.Options{Durable: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	require.NoError(t, server.CreateDatabase(t.Context(), "restored"))
	url := server.URL("restored")
	pgTool(t, server, "pg_restore", "--no-owner", "--no-privileges", "--exit-on-error", "--dbname="+url, file)
	db := openDatabaseAt(t, url)
	db.migrate()
	return db
}

// pgTool runs one of PostgreSQL's own programs.
func pgTool(t *testing.T, server *pgdev.Server, name string, args ...string) {
	t.Helper()
	path := filepath.Join(server.Binaries(), name)
	if _, err := exec.LookPath(path); err != nil {
		t.Skipf("this PostgreSQL comes without %s", name)
	}
	out, err := exec.Command(path, args...).CombinedOutput()
	require.NoError(t, err, string(out))
}
