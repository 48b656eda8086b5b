package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A process that is killed while it delivers loses nothing that it had acknowledged. Lost events are found in the two
// ledgers alone; the tables only have to agree with them.
func TestKilledServiceLosesNothing(t *testing.T) {
	t.Parallel()
	db, sink := migratedDatabase(t), newGate(t)
	first := startNode(t, db, "--max-workers", "240") // an endpoint without a response so far gets a sixth of them
	key := first.topic("orders")
	first.subscribe("orders", "billing", sink.url)
	load := startPublishers(t, &first.service, "orders", key, 4)
	eventually(t, "200 deliveries are pending and 40 requests are in flight", func() bool {
		return sink.held() == 40 && one[int](db, unfinishedQuery) >= 200
	})

	first.kill()
	load.working.Wait()
	unfinished := one[int](db, unfinishedQuery)
	require.GreaterOrEqual(t, unfinished, 100, "unfinished at the kill")
	eventually(t, "the kill cut at least 10 requests", func() bool { return sink.held() == 0 })
	require.GreaterOrEqual(t, len(sink.cutIDs()), 10, "in the middle of their POST at the kill")
	t.Logf("at the kill: %d unfinished, %d in the middle of their POST", unfinished, len(sink.cutIDs()))

	startNode(t, db)
	sink.open()
	db.drained()
	verdict := load.compare(sink)
	require.GreaterOrEqual(t, verdict.Published, 100)
	require.Empty(t, verdict.Lost, "acknowledged and never received")
	require.Empty(t, verdict.Changed, "received with other bytes than were published")
	require.LessOrEqual(t, len(verdict.Unacknowledged), 4,
		"a publisher had one request open: its response may be lost with the process")
	requireEndedOnce(t, db)
	// A canceled request looks the same as one whose worker still waited for the endpoint.
	marked := one[[]string](db, "SELECT array_agg(event_id) FROM postrider.deliveries WHERE reruns = 1")
	require.Subset(t, marked, sink.cutIDs(), "the interrupted are marked")
	require.LessOrEqual(t, len(marked), 240, "and nothing that no worker had in hand")
	require.Equal(t, len(marked), one[int](db, "SELECT count(*) FROM postrider.delivery_attempts WHERE reruns = 1"))
}

// requireEndedOnce: everything was delivered by one recorded attempt, ended once and left no job behind.
func requireEndedOnce(t *testing.T, db *database) {
	t.Helper()
	events := one[int](db, "SELECT count(*) FROM postrider.events WHERE matched = 1")
	require.Equal(t, events, one[int](db, "SELECT count(*) FROM postrider.deliveries"), "a delivery per event")
	require.Equal(t, events, one[int](db,
		"SELECT count(DISTINCT delivery_id) FROM postrider.deliveries WHERE state = 'delivered' AND attempts = 1"))
	require.Equal(t, events, one[int](db, "SELECT count(*) FROM postrider.delivery_attempts"), "an attempt per delivery")
	require.Equal(t, events,
		one[int](db, "SELECT count(DISTINCT delivery_id) FROM postrider.delivery_attempts WHERE status = 200 AND number = 1"))
	eventually(t, "no job is left", func() bool {
		return one[int](db, "SELECT count(*) FROM postrider_internal.river_job WHERE kind = 'deliver'") == 0
	})
}

// Of two nodes one is killed in the middle of its attempts: the other makes them again as soon as it has written four
// heartbeats, one a second, without the dead one moving.
func TestSurvivorMakesTheAttemptsOfAKilledNodeAgain(t *testing.T) {
	t.Parallel()
	survivorMakesAttemptsAgain(t, migratedDatabase(t))
}

func survivorMakesAttemptsAgain(t *testing.T, db *database) {
	t.Helper()
	sink := newGate(t)
	survivor := startNode(t, db, "--max-workers", "120")
	doomed := startNode(t, db, "--max-workers", "120")
	key := survivor.topic("orders")
	survivor.subscribe("orders", "billing", sink.url)
	survivor.publish("orders", key, cloudEvents("e", 40)) // a node gives one event subscription at most half its workers
	eventually(t, "both nodes have 20 requests in flight", func() bool {
		return sink.held() == 40 && one[int](db, runningQuery, survivor.name) == 20 &&
			one[int](db, runningQuery, doomed.name) == 20
	})

	doomed.kill()
	killed := time.Now()
	eventually(t, "the kill cut 20 requests", func() bool { return len(sink.cutIDs()) == 20 })
	sink.open()
	db.drained()
	requireMadeAgain(t, db, sink, killed)
	requireEndedOnce(t, db)
	require.Equal(t, []string{survivor.name}, one[[]string](db, "SELECT array_agg(id) FROM postrider_internal.nodes"))
}

// requireMadeAgain: each request that the kill cut arrived again soon after, and those are the deliveries marked.
func requireMadeAgain(t *testing.T, db *database, sink *gate, killed time.Time) {
	t.Helper()
	var after []time.Duration
	for _, id := range sink.cutIDs() {
		again := sink.again(id)
		require.False(t, again.IsZero(), "%s was made again", id)
		after = append(after, again.Sub(killed).Round(time.Millisecond))
	}
	t.Logf("from the kill to the second arrival: %s to %s", slices.Min(after), slices.Max(after))
	marked := one[[]string](db, "SELECT array_agg(event_id) FROM postrider.deliveries WHERE reruns > 0")
	require.ElementsMatch(t, sink.cutIDs(), marked, "the interrupted are marked, and no others")
}

// Of three nodes the oldest is killed, which would be the leader if there was one. There is none: neither the dead
// node's attempts nor the retries that come due meanwhile wait for a successor.
func TestKilledNodeOfThreeHoldsUpNothing(t *testing.T) {
	t.Parallel()
	db, sink := migratedDatabase(t), newGate(t)
	// an endpoint without a response so far gets a sixth of them
	start := func() *nodeProcess { return startNode(t, db, "--max-workers", "120") }
	first := start()
	first.publishMany("orders", sink.url, 20)
	eventually(t, "the first node has 20 requests in flight", func() bool { return sink.held() == 20 })
	start()
	start()
	failOnce(t, db, first)

	require.Zero(t, one[int](db, "SELECT count(*) FROM postrider_internal.river_leader"))
	first.kill()
	killed := time.Now()
	eventually(t, "the kill cut 20 requests", func() bool { return len(sink.cutIDs()) == 20 })
	sink.open()
	db.drained()

	requireMadeAgain(t, db, sink, killed)
	require.Equal(t, 20, one[int](db,
		"SELECT count(*) FROM postrider.deliveries WHERE topic = 'orders' AND state = 'delivered' AND attempts = 1"))
	require.Equal(t, 5, one[int](db, "SELECT count(*) FROM postrider.deliveries WHERE topic = 'failing-once' "+
		"AND state = 'delivered' AND attempts = 2 AND reruns = 0"))
	late := one[float64](db,
		`SELECT max(extract(epoch FROM b.started_at - a.next_attempt_at))::float8 FROM postrider.delivery_attempts a
		JOIN postrider.delivery_attempts b USING (delivery_id) WHERE a.number = 1 AND b.number = 2`)
	t.Logf("the retries came %.3f s after their time", late)
	require.Less(t, late, 15.0)
	require.Equal(t, 2, one[int](db, leasesQuery))
	require.Zero(t, one[int](db, leasesQuery+" WHERE id = $1", first.name))
}

// failOnce has five events fail and wait for their retry, long enough to need a promotion.
func failOnce(t *testing.T, db *database, n *nodeProcess) {
	t.Helper()
	retriesAfter(db, "patient", "7 seconds")
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Aeg-Delivery-Count") == "0" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(endpoint.Close)
	key := n.topic("failing-once")
	n.subscribeUnder("patient", "failing-once", "billing", endpoint.URL)
	n.publish("failing-once", key, cloudEvents("f", 5))
	eventually(t, "five retries wait for their promotion",
		db.atLeast(5, "SELECT count(*) FROM postrider_internal.river_job WHERE state = 'scheduled'"))
}

// A clean stop lets attempts in flight finish for the stop timeout and cuts the others, which another node makes again.
func TestStoppedNodeReturnsItsJobs(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name        string
		stopTimeout time.Duration
		finish      bool // the endpoint responds while the node stops
	}{
		{"attempts in flight finish", 10 * time.Minute, true}, // longer than the test waits
		// Longer than the second that a job waits for its turn at an endpoint: those are put on hold, not cut.
		{"attempts in flight are cut after the stop timeout", 2 * time.Second, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			db, sink := migratedDatabase(t), newGate(t)
			stopped := startNode(t, db, "--max-workers", "120", "--stop-timeout", row.stopTimeout.String())
			startNode(t, db, "--max-workers", "120")
			key := stopped.topic("orders")
			// namespace-2023 never retries a canceled call: a stop that took its own cut for an outcome would dead-letter.
			stopped.subscribeUnder("namespace-2023", "orders", "billing", sink.url)
			load := startPublishers(t, &stopped.service, "orders", key, 4)
			eventually(t, "each node has 20 requests in flight", func() bool { return sink.held() == 40 })

			stopped.signal(syscall.SIGTERM)
			load.working.Wait() // the first thing a stopping node does is to take nothing new
			if row.finish {
				require.Never(t, func() bool { return len(sink.cutIDs()) > 0 }, time.Second, pollTime,
					"attempts in flight are left alone")
				sink.open()
			}
			require.Zero(t, stopped.wait())
			require.NoFileExists(t, stopped.readyFile)
			require.Zero(t, one[int](db, "SELECT count(*) FROM postrider_internal.nodes WHERE id = $1", stopped.name),
				"it gave its lease back")
			if !row.finish {
				sink.open()
			}
			db.drained()
			verdict := load.compare(sink)
			require.NotZero(t, verdict.Published)
			require.Empty(t, verdict.Lost)
			require.Empty(t, verdict.Changed)
			require.Empty(t, verdict.Unacknowledged, "every accepted request had a response")
			require.Zero(t, verdict.Duplicates)
			requireEndedOnce(t, db)
			requireMarked(t, db, sink, row.finish)
		})
	}
}

func requireMarked(t *testing.T, db *database, sink *gate, finished bool) {
	t.Helper()
	reruns := one[int](db, "SELECT count(*) FROM postrider.delivery_attempts WHERE reruns > 0")
	require.Len(t, sink.cutIDs(), reruns, "the interrupted are marked, and no others")
	if finished {
		require.Zero(t, reruns)
	} else {
		require.Equal(t, 20, reruns)
	}
}

// A client that sends half a request must not hold up a stop.
func TestStopWaitsForNoHalfSentRequest(t *testing.T) {
	t.Parallel()
	node := startNode(t, migratedDatabase(t), "--stop-timeout", "10m") // longer than the test waits
	key := node.topic("orders")
	conn, err := net.Dial("tcp", strings.TrimPrefix(node.api, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn,
		"POST /topics/orders/api/events HTTP/1.1\r\nHost: x\r\nAeg-Sas-Key: %s\r\nContent-Type: "+
			"application/json\r\nContent-Length: 100\r\n\r\n[", key)
	require.NoError(t, err)
	node.publish("orders", key, cloudEvent("after")) // served after the half one arrived

	require.Zero(t, node.stop())
}
