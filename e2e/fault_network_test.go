package e2e

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/ledger"
	"postrider/internal/testnode"
)

// flowBound is how long deliveries may take to flow again after the outside is well: measured are seconds, on a machine
// that does nothing else, as with -faults.
const flowBound = 15 * time.Second

// stubborn publishers continue after each error with another event: one whose response was lost may be
// stored.
type stubborn struct {
	*publishers
	service    *service
	topic, key string
	stop       func() // lets requests in progress end
	rejected   atomic.Int64
	checks     atomic.Int64 // how often whether deliveries flow

	mu  sync.Mutex
	odd []string // unexpected responses
}

// publishStubbornly makes a topic with an event subscription for the sink, which it opens, and publishes with a few
// clients, one event every few milliseconds each.
func publishStubbornly(t *testing.T, s *service, topic string, sink *gate) *stubborn {
	t.Helper()
	p := &publishers{t: t, ledger: newBook(t)}
	l := &stubborn{publishers: p, service: s, topic: topic, key: s.topic(topic)}
	s.subscribe(topic, "billing", sink.url)
	select {
	case <-sink.opened:
	default:
		sink.open()
	}
	stopped := make(chan struct{})
	l.stop = sync.OnceFunc(func() { close(stopped) })
	clients := 4
	if *faults {
		clients = 16
	}
	for client := range clients {
		p.working.Go(func() { l.publishUntil(stopped, client) })
	}
	t.Cleanup(func() {
		l.stop()
		p.working.Wait()
	})
	return l
}

func (l *stubborn) publishUntil(stopped <-chan struct{}, client int) {
	for n := 0; ; n++ {
		pause := faultTime(60*time.Millisecond, 30*time.Millisecond) // some 65 events/s of all clients; 500 with -faults
		if !l.publishOne(fmt.Sprintf("%s-c%d-%d", l.topic, client, n)) {
			pause = 40 * time.Millisecond
		}
		select {
		case <-stopped:
			return
		case <-time.After(pause):
		}
	}
}

// publishOne notes the event after a 200, and every response except a 503 with Retry-After.
func (l *stubborn) publishOne(id string) bool {
	event := cloudEvent(id)
	response, text, err := send(l.t.Context(), caller, http.MethodPost,
		l.service.api+eventsPath(l.topic)+"?api-version=2018-01-01", event, "aeg-sas-key", l.key, "Content-Type",
		"application/cloudevents+json")
	status := 0
	if response != nil {
		status = response.StatusCode
	}
	switch {
	case err == nil && status == http.StatusOK:
		return l.ledger.Note(id, sha256.Sum256([]byte(event))) == nil
	case l.t.Context().Err() != nil:
		return false
	case err == nil && status == http.StatusServiceUnavailable && response.Header.Get("Retry-After") != "":
		l.rejected.Add(1)
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.odd = append(l.odd, fmt.Sprint(id, ": ", status, " ", text, " ", err))
	return false
}

// flowsAgain is how long it takes from now until an event that is published from now on arrives.
func (l *stubborn) flowsAgain(sink *gate, what string) time.Duration {
	l.t.Helper()
	l.checks.Add(1)
	began := time.Now()
	id := ""
	for n := 0; ; n++ {
		id = fmt.Sprintf("%s-after-%d-%d", l.topic, l.checks.Load(), n)
		if l.publishOne(id) {
			break
		}
		require.Less(l.t, time.Since(began), patience, "no publish is accepted after %s", what)
	}
	accepted := time.Since(began)
	eventually(l.t, "an event arrives that was published after "+what, func() bool { return sink.hasArrived(id) })
	took := time.Since(began)
	l.t.Logf("after %s: a publish was accepted within %s, and its event arrived within %s", what,
		accepted.Round(time.Millisecond), took.Round(time.Millisecond))
	require.Less(l.t, took, faultTime(patience, flowBound), what)
	return took
}

// more waits until n more events have arrived: the load goes on.
func (l *stubborn) more(sink *gate, n int) {
	l.t.Helper()
	n += len(sink.arrivalsSoFar())
	eventually(l.t, "the load goes on", func() bool { return len(sink.arrivalsSoFar()) >= n })
}

func (g *gate) hasArrived(id string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.arrivals[id]) > 0
}

// owned: every unfinished delivery has exactly one owner, in the middle of it all.
func (l *stubborn) owned(db *database) {
	l.t.Helper()
	require.Zero(l.t, brokenOwners(db), "every unfinished delivery has exactly one owner")
}

// settled ends the publishing, waits until everything has ended and requires that nothing was lost, changed, or ended
// twice.
func (l *stubborn) settled(db *database, sink *gate, duplicates int) ledger.Verdict {
	l.t.Helper()
	l.owned(db)
	l.stop()
	l.working.Wait()
	db.drained()
	l.owned(db)
	verdict := l.compare(sink)
	l.t.Logf("%d acknowledged, %d rejected, %d received, %d duplicates, %d stored without a response",
		verdict.Published, l.rejected.Load(), verdict.Received, verdict.Duplicates, len(verdict.Unacknowledged))
	require.Empty(l.t, l.odd, "the response to a publish is 200, or 503 with Retry-After")
	require.NotZero(l.t, verdict.Published)
	require.Empty(l.t, verdict.Lost, "acknowledged and never received")
	require.Empty(l.t, verdict.Changed)
	require.LessOrEqual(l.t, verdict.Duplicates, duplicates)
	requireEndedOnce(l.t, db)
	require.Zero(l.t, one[int](db, testnode.EndedTwice))
	return verdict
}

// requireNoDeadNode requires that no node was ever considered dead.
func requireNoDeadNode(t *testing.T, nodes ...*nodeProcess) {
	t.Helper()
	for _, n := range nodes {
		require.NotContains(t, n.stderr.String(), "a node stopped its heartbeat")
	}
}

// wired is a node that reaches its database over a wire, under load.
func wired(t *testing.T) (w *wire, db *database, n *nodeProcess, load *stubborn, sink *gate) {
	t.Helper()
	db, sink = migratedDatabase(t), newGate(t)
	w = newWire(t, db)
	n = startNode(t, w.through(db))
	return w, db, n, publishStubbornly(t, &n.service, "orders", sink), sink
}

// Connections that end after their first message, their second, and so on: each step of a handshake, a preparation, a
// transaction and its response is once the last.
func TestFaultConnectionsThatAreCutAfterEveryMessage(t *testing.T) {
	onlyWithFaults(t)
	t.Parallel()
	w, db, n, load, sink := wired(t)
	for step := 1; step <= 60; step++ {
		for _, up := range []bool{true, false} {
			full := new(atomic.Int64)
			w.breaks(cutAfter(step, up, full))
			eventually(t, fmt.Sprintf("3 connections were cut after message %d (to PostgreSQL: %t)", step, up),
				func() bool { return full.Load() >= 3 })
		}
		load.owned(db)
	}
	w.heal()
	load.flowsAgain(sink, "the cuts")
	load.settled(db, sink, 0)
	requireNoDeadNode(t, n)
}

// Faults of which there is mostly the end to wait for are waited for together: one after the other, two at a time, they
// would take a minute.
func TestFaultsThatTakeTheirTime(t *testing.T) {
	onlyWithFaults(t)
	t.Parallel()
	tests := map[string]func(*testing.T){
		"a network that stalls":           func(t *testing.T) { networkFails(t, true, 25*time.Second) },
		"connections that go silent":      func(t *testing.T) { networkFails(t, false, 20*time.Second) },
		"two connections are enough":      twoConnectionsAreEnough,
		"the response of a fetch is lost": responseOfAFetchIsLost,
		"a frozen node that wakes":        frozenNodeWakes,
	}
	for _, table := range []string{"deliveries", "river_job", "events", "event_subscription_states"} {
		tests["a user locks "+table] = func(t *testing.T) { userLocks(t, table) }
	}
	var group sync.WaitGroup
	for name, test := range tests { //nolint:paralleltest // at once, without waiting for a free place each
		group.Go(func() { t.Run(name, test) })
	}
	group.Wait()
}

// A network that is down for some seconds and brings everything then, or whose messages vanish while connections stay
// open, as with a firewall that forgot them or a host that is gone: no statement waits for ever, new connections are
// made, nothing is lost, and nothing is sent twice.
func networkFails(t *testing.T, comesBack bool, lasts time.Duration) {
	w, db, n, load, sink := wired(t)
	load.flowsAgain(sink, "start")
	healed := make(chan struct{})
	heal := sync.OnceFunc(func() { close(healed) })
	t.Cleanup(heal)
	w.breaks(func(*wireLine, wireMessage) fate {
		if !comesBack {
			return silence
		}
		<-healed
		return handOn
	})
	<-time.After(lasts)
	w.heal()
	heal()
	load.flowsAgain(sink, "the network was back")
	n.publishMany("made-later", sink.url, 3) // needs the configuration to be read again
	load.settled(db, sink, 0)
	requireNoDeadNode(t, n)
}

// Two connections are enough for everything, however slowly: the heartbeat has its own.
func twoConnectionsAreEnough(t *testing.T) {
	db, sink := migratedDatabase(t), newGate(t)
	nodes := []*nodeProcess{startNode(t, db, "--max-conns", "2"), startNode(t, db, "--max-conns", "2")}
	load := publishStubbornly(t, &nodes[0].service, "orders", sink)
	<-time.After(30 * time.Second)
	load.flowsAgain(sink, "load on two connections")
	load.settled(db, sink, 0)
	require.Zero(t, load.rejected.Load())
	requireNoDeadNode(t, nodes...)
}

// faultTime is how long a fault lasts.
func faultTime(short, long time.Duration) time.Duration {
	if *faults {
		return long
	}
	return short
}

// A committed fetch whose response is lost leaves jobs without a worker. They are detected and queued again.
//
// Another node publishes, because a node rarely fetches its own publishes.
func responseOfAFetchIsLost(t *testing.T) {
	db, sink := migratedDatabase(t), newGate(t)
	w := newWire(t, db)
	n := startNode(t, w.through(db), "--role", "worker")
	load := publishStubbornly(t, &startNode(t, db, "--role", "api").service, "orders", sink)
	lost := new(atomic.Int64)
	const times = int64(40)
	w.breaks(losesResponses("SET state = 'running', attempt = j.attempt + 1", times, lost))
	eventually(t, "the responses are lost", func() bool { return lost.Load() > times })
	w.heal()
	healed := time.Now()
	const stranded = "SELECT coalesce(array_agg(id), '{}') FROM postrider_internal.river_job WHERE state = 'running' " +
		"AND kind = 'deliver'"
	jobs := one[[]int64](db, stranded)
	eventually(t, "other jobs took their place", func() bool {
		return one[int](db, "SELECT count(*) FROM postrider_internal.river_job WHERE id = ANY ($1)", jobs) == 0
	})
	took := time.Since(healed)
	verdict := load.settled(db, sink, 0)
	marked := one[int](db, "SELECT count(*) FROM postrider.deliveries WHERE reruns > 0")
	t.Logf("%d of %d made again, the last %s after the fault", marked, verdict.Published, took.Round(time.Millisecond))
	require.GreaterOrEqual(t, int64(marked), times/4,
		"a quarter of the lost responses had a job at least: a fetch is also for the queue of routes, or finds nothing")
	require.Equal(t, marked, one[int](db, "SELECT count(*) FROM postrider.delivery_attempts WHERE reruns > 0"))
	requireNoDeadNode(t, n)
}

// If the response to the COMMIT of a publish is lost, the publisher gets 503 although the events are stored. It never
// gets 200 for events that are not stored.
func TestFaultLostResponseToAPublishsCommit(t *testing.T) {
	t.Parallel()
	const publishes = "INSERT INTO postrider_internal.events"
	w, db, _, load, sink := wired(t)
	lost, never := new(atomic.Int64), new(atomic.Int64)
	times := int64(10)
	if *faults {
		times = 200
	}
	w.breaks(losesResponses(publishes, times, lost))
	eventually(t, "responses of COMMIT were lost", func() bool { return lost.Load() > times })
	stored := load.rejected.Load()
	w.breaks(losesQuestions(publishes, times, never))
	eventually(t, "publishes did not reach PostgreSQL", func() bool { return never.Load() > times })
	w.heal()
	verdict := load.settled(db, sink, 0)
	require.GreaterOrEqual(t, stored, times, "each response was 503")
	require.GreaterOrEqual(t, load.rejected.Load(), 2*times)
	require.GreaterOrEqual(t, int64(len(verdict.Unacknowledged)), times,
		"committed events are delivered even without a response")
	require.LessOrEqual(t, int64(len(verdict.Unacknowledged)), stored, "what never reached PostgreSQL is not")
}
