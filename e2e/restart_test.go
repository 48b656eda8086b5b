package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/pgdev"
)

// ownCluster is a PostgreSQL that no other test uses, with a migrated database. It keeps what it has committed: a crash
// that loses a confirmed transaction is not the nodes' fault.
func ownCluster(t *testing.T) (*pgdev.Server, *database) {
	t.Helper()
	server, err := pgdev.Start(t.Context(), pgdev.Options{Durable: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	require.NoError(t, server.CreateDatabase(t.Context(), "postrider"))
	db := openDatabaseAt(t, server.URL("postrider"))
	db.migrate()
	return server, db
}

// While PostgreSQL is unavailable, for longer than a lease, no node can write a heartbeat, and none considers another
// one dead. Requests in progress continue: endpoints respond to some before the database is available.
func TestRestartOfPostgresKillsNoNode(t *testing.T) {
	t.Parallel()
	server, db := ownCluster(t)
	sink := newGate(t)
	nodes := twoBusyNodes(t, db, sink)

	sink.letPass(20)
	require.NoError(t, server.Kill())
	for _, n := range nodes {
		eventually(t, "the node missed six heartbeats",
			func() bool { return strings.Count(n.stderr.String(), "the heartbeat failed") >= 6 })
		require.Contains(t, n.manage(http.StatusServiceUnavailable, http.MethodGet, "/readyz", ""), "database unavailable")
		n.manage(http.StatusOK, http.MethodGet, "/healthz", "") // it must not be restarted for that
		require.NotContains(t, n.stderr.String(), "can lose accepted events in a crash", "this PostgreSQL is durable")
	}
	require.NoError(t, server.Restart(t.Context()))
	db.pool.Reset() // its connections are dead

	requireBeating(t, db, nodes)
	require.Equal(t, 20, sink.held())
	sink.open()
	db.drained()
	requireEndedOnce(t, db)
	requireMadeOnce(t, db, nodes, sink)
}

// twoBusyNodes have 20 requests in flight each.
func twoBusyNodes(t *testing.T, db *database, sink *gate) []*nodeProcess {
	t.Helper()
	// an endpoint without a response so far gets a sixth of them
	nodes := []*nodeProcess{startNode(t, db, "--max-workers", "120"), startNode(t, db, "--max-workers", "120")}
	nodes[0].publishMany("orders", sink.url, 40)
	eventually(t, "both nodes have 20 requests in flight", func() bool {
		return sink.held() == 40 && one[int](db, runningQuery, nodes[0].name) == 20 &&
			one[int](db, runningQuery, nodes[1].name) == 20
	})
	return nodes
}

// publishMany makes a topic with one event subscription and publishes n events to it in one request. Their ids begin
// with the topic's name.
func (s *service) publishMany(topic, endpoint string, n int) {
	s.t.Helper()
	key := s.topic(topic)
	s.subscribe(topic, "billing", endpoint)
	s.publish(topic, key, cloudEvents(topic+"-", n))
}

// cloudEvents is a request's body of n events, whose ids begin with prefix.
func cloudEvents(prefix string, n int) string {
	events := make([]string, n)
	for i := range events {
		events[i] = cloudEvent(fmt.Sprintf("%s%d", prefix, i))
	}
	return "[" + strings.Join(events, ",") + "]"
}

// requireBeating waits until the nodes have written more heartbeats than it takes to find another one dead.
func requireBeating(t *testing.T, db *database, nodes []*nodeProcess) {
	t.Helper()
	const query = "SELECT beat FROM postrider_internal.nodes WHERE id = $1"
	before := make([]int, len(nodes))
	for i, n := range nodes {
		eventually(t, "PostgreSQL responds",
			func() bool { return db.pool.QueryRow(t.Context(), query, n.name).Scan(&before[i]) == nil })
	}
	for i, n := range nodes {
		eventually(t, "the node has written six more heartbeats", db.atLeast(before[i]+6, query, n.name))
	}
	require.Equal(t, len(nodes), one[int](db, "SELECT count(*) FROM postrider_internal.nodes"))
	for _, n := range nodes {
		require.NotContains(t, n.stderr.String(), "a node stopped its heartbeat",
			"no node was taken for dead, even for a moment")
	}
}

// requireMadeOnce: no request was made a second time, and each node recorded its own.
func requireMadeOnce(t *testing.T, db *database, nodes []*nodeProcess, sink *gate) {
	t.Helper()
	require.Zero(t, one[int](db, "SELECT count(*) FROM postrider.deliveries WHERE reruns > 0"))
	require.Zero(t, one[int](db, "SELECT count(*) FROM postrider.delivery_attempts WHERE reruns > 0"))
	require.Len(t, sink.arrivalsSoFar(), 40)
	for _, id := range sink.arrivalsSoFar() {
		require.Zero(t, sink.again(id), "%s arrived again", id)
	}
	for _, n := range nodes {
		require.Equal(t, 20, one[int](db, "SELECT count(*) FROM postrider.delivery_attempts WHERE node = $1", n.name))
	}
}
