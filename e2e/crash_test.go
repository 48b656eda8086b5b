package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
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

	require.Contains(t, first.stderr.String(), "can lose accepted events in a crash", "PostgreSQL is not durable in tests")
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

// requireMadeAgain: each request that the kill cut arrived again, and those are the deliveries marked.
func requireMadeAgain(t *testing.T, db *database, sink *gate, killed time.Time) {
	t.Helper()
	last := killed
	for _, id := range sink.cutIDs() {
		again := sink.again(id)
		require.False(t, again.IsZero(), "%s was made again", id)
		if again.After(last) {
			last = again
		}
	}
	t.Logf("made again within %s of the kill", last.Sub(killed).Round(time.Millisecond))
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
	failOnce(t, db, first, 5)
	eventually(t, "the retries wait for their promotion",
		db.atLeast(5, "SELECT count(*) FROM postrider_internal.river_job WHERE state = 'scheduled'"))
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

// failOnce has events fail whose retry is so late that it needs a promotion.
func failOnce(t *testing.T, db *database, n *nodeProcess, events int) {
	t.Helper()
	retriesAfter(db, "patient", 7*time.Second)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Aeg-Delivery-Count") == "0" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(endpoint.Close)
	key := n.topic("failing-once")
	n.subscribeUnder("patient", "failing-once", "billing", endpoint.URL)
	n.publish("failing-once", key, cloudEvents("f", events))
}

// A clean stop cuts the attempts in flight that do not finish within the stop timeout. Another node makes them again.
func TestStoppedNodeReturnsItsJobs(t *testing.T) {
	t.Parallel()
	db, sink := migratedDatabase(t), newGate(t)
	// Longer than the second that a job waits for its turn at an endpoint: those are put on hold, not cut.
	stopped := startNode(t, db, "--max-workers", "120", "--stop-timeout", "2s")
	startNode(t, db, "--max-workers", "120")
	key := stopped.topic("orders")
	// namespace-2023 never retries a canceled call: a stop that took its own cut for an outcome would dead-letter.
	stopped.subscribeUnder("namespace-2023", "orders", "billing", sink.url)
	load := startPublishers(t, &stopped.service, "orders", key, 4)
	eventually(t, "each node has 20 requests in flight", func() bool { return sink.held() == 40 })

	stopped.signal(syscall.SIGTERM)
	load.working.Wait() // the first thing a stopping node does is to take nothing new
	require.Zero(t, stopped.wait())
	require.NoFileExists(t, stopped.readyFile)
	require.Zero(t, one[int](db, "SELECT count(*) FROM postrider_internal.nodes WHERE id = $1", stopped.name),
		"it gave its lease back")
	sink.open()
	db.drained()
	verdict := load.compare(sink)
	require.NotZero(t, verdict.Published)
	require.Empty(t, verdict.Lost)
	require.Empty(t, verdict.Changed)
	require.Empty(t, verdict.Unacknowledged, "every accepted request had a response")
	require.Zero(t, verdict.Duplicates)
	requireEndedOnce(t, db)
	require.Len(t, sink.cutIDs(), 20)
	require.Equal(t, 20, one[int](db, "SELECT count(*) FROM postrider.delivery_attempts WHERE reruns > 0"),
		"the interrupted are marked, and no others")
}

// A stop waits for no client that sent half a request, and responds to consumers that wait, without events.
func TestStopWaitsForNoClient(t *testing.T) {
	t.Parallel()
	node := startNode(t, migratedDatabase(t), "--stop-timeout", "10m") // longer than the test waits
	key := node.makeTopic("orders", cloudTopic)
	node.manage(http.StatusCreated, http.MethodPut, "/v1/topics/orders/subscriptions/billing", queueMode)
	received := make(chan string, 1)
	go func() {
		status, body, err := call(t.Context(), http.MethodPost,
			node.api+"/topics/orders/eventsubscriptions/billing:receive?maxWaitTime=120", "", "aeg-sas-key", key)
		received <- fmt.Sprint(status, body, err)
	}()
	eventually(t, "the consumer waits", func() bool { return valueOf(node.scrape(), "postrider_waiting_receivers") == 1 })
	conn, err := net.Dial("tcp", strings.TrimPrefix(node.api, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn,
		"POST /topics/orders/api/events HTTP/1.1\r\nHost: x\r\nAeg-Sas-Key: %s\r\nContent-Type: "+
			"application/json\r\nContent-Length: 100\r\n\r\n[", key)
	require.NoError(t, err)
	node.scrape() // served after the half one arrived

	require.Zero(t, node.stop())
	require.Equal(t, `200{"value":[]}<nil>`, <-received)
}
