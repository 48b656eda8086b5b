package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/pgdev"
)

// A failover to a standby that lacks the last commits: the node has requests in flight about events that are no more,
// whose ids go to others. What those requests come to must not end the others' deliveries, and no topic is served that
// is not there.
func TestFaultFailoverThatLosesCommits(t *testing.T) {
	t.Parallel()
	server, db := ownCluster(t)
	n := startNode(t, db)
	lost, kept := newGate(t), newGate(t)
	lostKey, keptKey := n.topic("lost"), n.topic("kept")
	n.subscribe("lost", "billing", lost.url)
	n.subscribe("kept", "billing", kept.url)
	standby := standbyOf(t, server, db)
	eventually(t, "the node has the database again", func() bool { return n.isReady() })

	const events = 60
	n.publish("lost", lostKey, cloudEvents("lost-", events))
	goneKey := n.topic("gone")
	n.subscribe("gone", "billing", lost.url)
	eventually(t, "all are in flight", func() bool { return lost.held() == events })
	last := one[int64](db, "SELECT max(id) FROM postrider_internal.deliveries")
	failOver(t, server, standby)
	db.pool.Reset()

	eventually(t, "the node publishes again", func() bool {
		status, _, err := postEvents(t.Context(), n.api, "kept", keptKey, cloudEvents("kept-", events))
		return err == nil && status == http.StatusOK
	})
	require.Zero(t, one[int](db, "SELECT count(*) FROM postrider.deliveries WHERE topic = 'lost'"))
	require.LessOrEqual(t, one[int64](db, "SELECT min(id) FROM postrider_internal.deliveries"), last,
		"ids were given away again")
	status, text, err := postEvents(t.Context(), n.api, "gone", goneKey, cloudEvent("too-late"))
	require.NoError(t, err)
	require.Equal(t, http.StatusUnauthorized, status, text)

	eventually(t, "the others are in flight as well", func() bool { return kept.held() == events })
	lost.open()
	eventually(t, "the responses for lost rows were recorded", func() bool {
		seen := n.scrape()
		return valueOf(seen, "postrider_attempts_in_flight") == events && valueOf(seen, "postrider_waiting_results") == 0
	})
	require.Equal(t, events,
		one[int](db, "SELECT count(*) FROM postrider.deliveries WHERE topic = 'kept' AND state = 'pending' AND attempts = 0"))
	kept.open()
	eventually(t, "all of the others are delivered",
		db.atLeast(events, "SELECT count(*) FROM postrider.deliveries WHERE topic = 'kept' AND state = 'delivered'"))
	for _, id := range kept.arrivalsSoFar() {
		require.Contains(t, id, "kept-")
	}
	require.Len(t, kept.arrivalsSoFar(), events)
	require.Zero(t, brokenOwners(db))
}

func (s *service) isReady() bool {
	status, _, err := call(s.t.Context(), http.MethodGet, s.api+"/readyz", "")
	return err == nil && status == http.StatusOK
}

// standbyOf is a copy of the server's data as they are now. No publisher may be active.
func standbyOf(t *testing.T, server *pgdev.Server, db *database) string {
	t.Helper()
	_, err := db.pool.Exec(t.Context(), "CHECKPOINT")
	require.NoError(t, err)
	require.NoError(t, server.Kill())
	standby := filepath.Join(server.Dir(), "standby")
	out, err := exec.CommandContext(t.Context(), "cp", "-a", filepath.Join(server.Dir(), "data"), standby).CombinedOutput()
	require.NoError(t, err, string(out))
	require.NoError(t, server.Restart(t.Context()))
	db.pool.Reset()
	return standby
}

// failOver puts the copy in the server's place, at the same address.
func failOver(t *testing.T, server *pgdev.Server, standby string) {
	t.Helper()
	require.NoError(t, server.Kill())
	data := filepath.Join(server.Dir(), "data")
	require.NoError(t, os.RemoveAll(data))
	require.NoError(t, os.Rename(standby, data))
	require.NoError(t, server.Restart(t.Context()))
}
