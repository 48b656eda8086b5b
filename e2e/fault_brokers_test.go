//go:build unix

package e2e

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	brokerBatch = 20 // events of a request
	// brokerProgress counts what both destinations have received.
	brokerProgress = `SELECT least(count(*) FILTER (WHERE subscription = 'kafka'),
		count(*) FILTER (WHERE subscription = 'nats')) FROM postrider.deliveries WHERE state = 'delivered'`
	brokerFailures = "SELECT count(*) FROM postrider.delivery_attempts WHERE subscription = $1 AND verdict = 'retry'"
	// brokerRepeated lists what may have arrived twice, under the names of the ledger.
	brokerRepeated = `SELECT coalesce(array_agg(subscription || '/' || event_id), '{}') FROM postrider.deliveries
		WHERE reruns > 0 OR attempts > 1`
)

// brokerFaults is a test of two nodes, a Kafka cluster and a NATS cluster, all of which are killed, and publishers.
// Each event goes to both destinations.
type brokerFaults struct {
	t        *testing.T
	db       *database
	key      string
	kafka    *kafkaBroker
	nats     *natsCluster
	watch    *faultWatch
	backlog  int64
	ledger   *book
	accepted atomic.Int64 // events with response 200

	mu     sync.Mutex
	nodes  []*nodeProcess // nil: dead
	failed error
}

func newBrokerFaults(t *testing.T, db *database, backlog int64) *brokerFaults {
	t.Helper()
	f := &brokerFaults{
		t: t, db: db, backlog: backlog, ledger: newBook(t), nodes: make([]*nodeProcess, 2), nats: newNATSCluster(t),
	}
	f.kafka = newKafkaBroker(t)
	retriesAfter(db, "soon", time.Second)
	for slot := range f.nodes {
		f.put(slot, startNode(t, db))
	}
	f.key = f.nodes[0].topic("orders")
	f.nats.createStream()
	for name, destination := range map[string]string{
		"kafka": fmt.Sprintf(`{"endpointType":"Kafka","properties":{"servers":["%s"],"tls":false,"topic":%q}}`,
			strings.Join(f.kafka.addresses, `","`), brokerTarget),
		"nats": fmt.Sprintf(`{"endpointType":"NatsJetStream","properties":{"servers":["%s"],"tls":false,"subject":%q}}`,
			strings.Join(f.nats.addresses, `","`), brokerTarget),
	} {
		// An acknowledgment that was lost with the stream's leader is not awaited for long.
		f.nodes[1].manage(http.StatusCreated, http.MethodPut, "/v1/topics/orders/subscriptions/"+name,
			fmt.Sprintf(`{"destination":%s,"responseTimeoutInSeconds":2,"retryPolicy":{"policy":"soon"}}`, destination))
	}
	f.watch = startFaultWatch(t, db)
	return f
}

func (f *brokerFaults) put(slot int, n *nodeProcess) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nodes[slot] = n
}

func (f *brokerFaults) node(slot int) *nodeProcess {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.nodes[slot]
}

// fail notes the first failure, and returns it.
func (f *brokerFaults) fail(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = cmp.Or(f.failed, err)
	return f.failed
}

// publish publishes until ctx ends, and waits for the last response. It pauses while there is a backlog. The events of
// a request without a response may be stored: they are noted nowhere.
func (f *brokerFaults) publish(ctx context.Context, client int) {
	for request := 0; ctx.Err() == nil; request++ {
		n := f.node(request % len(f.nodes))
		if n == nil || f.watch.unfinished.Load() > f.backlog {
			<-time.After(pollTime)
			continue
		}
		prefix := fmt.Sprintf("c%d-%d-", client, request)
		status, text, err := postEvents(f.t.Context(), n.api, "orders", f.key, cloudEvents(prefix, brokerBatch))
		if err != nil || status == http.StatusServiceUnavailable {
			continue
		}
		if status != http.StatusOK {
			_ = f.fail(fmt.Errorf("the response to a publish was %d %s", status, text))
			return
		}
		for i := range brokerBatch {
			id := fmt.Sprint(prefix, i)
			for _, destination := range []string{"kafka/", "nats/"} {
				if err := f.ledger.Note(destination+id, sha256.Sum256([]byte(cloudEvent(id)))); err != nil {
					_ = f.fail(err)
				}
			}
		}
		f.accepted.Add(brokerBatch)
	}
}

// kill kills a node or a broker while deliveries are pending, and starts it again.
func (f *brokerFaults) kill(number int, what string) {
	f.t.Helper()
	eventually(f.t, "deliveries are pending", f.db.atLeast(brokerBatch, unfinishedQuery))
	switch what {
	case "node":
		slot := number % len(f.nodes)
		n := f.node(slot)
		n.kill()
		f.put(slot, nil)
		require.Zero(f.t, brokenOwners(f.db), "every unfinished delivery has exactly one owner")
		f.requireSound(n)
		f.put(slot, startNode(f.t, f.db))
	case "kafka":
		failures := one[int](f.db, brokerFailures, "kafka")
		f.kafka.cluster.Close()
		eventually(f.t, "an attempt fails", f.db.atLeast(failures+1, brokerFailures, "kafka"))
		f.kafka.start()
	case "nats":
		f.nats.killLeader()
	}
}

func (f *brokerFaults) requireSound(n *nodeProcess) {
	f.t.Helper()
	for _, text := range []string{"inconsistent", "goroutine "} {
		require.NotContains(f.t, n.stderr.String(), text)
	}
}

// run publishes, and makes the kills. Between two of them both destinations receive events again.
func (f *brokerFaults) run(kills []string, events int) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	var working sync.WaitGroup
	defer func() { cancel(); working.Wait() }()
	for client := range 2 {
		working.Go(func() { f.publish(ctx, client) })
	}
	for number, what := range kills {
		received := one[int](f.db, brokerProgress) + events/(2*len(kills))
		eventually(f.t, "both destinations receive events", f.db.atLeast(received, brokerProgress))
		f.kill(number, what)
		require.NoError(f.t, f.fail(nil))
	}
	received := max(events, one[int](f.db, brokerProgress)+1)
	eventually(f.t, "both destinations receive the last events", f.db.atLeast(received, brokerProgress))
}

// requireNothingLost compares what was accepted with what the brokers have, and returns a summary.
func (f *brokerFaults) requireNothingLost() string {
	f.t.Helper()
	require.NoError(f.t, f.fail(nil))
	f.db.drained()
	for slot := range f.nodes {
		require.Zero(f.t, f.node(slot).stop())
		f.requireSound(f.node(slot))
	}
	f.watch.stop()
	received, seen, twice := newBook(f.t), map[string]bool{}, map[string][]string{}
	note := func(destination string) func(body []byte) {
		return func(body []byte) {
			var event struct{ ID string }
			require.NoError(f.t, json.Unmarshal(body, &event), "%s: %q", destination, body)
			name := destination + "/" + event.ID
			require.NoError(f.t, received.Note(name, sha256.Sum256(body)))
			if seen[name] {
				twice[destination] = append(twice[destination], name)
			}
			seen[name] = true
		}
	}
	f.kafka.each(note("kafka"))
	f.nats.each(note("nats"))
	v := compareBooks(f.t, f.ledger, received)
	require.NotZero(f.t, v.Published)
	require.Empty(f.t, v.Lost, "accepted and not in the broker")
	require.Empty(f.t, v.Changed, "other bytes than were published")
	requireEnded(f.t, f.db, f.accepted.Load())
	repeated := map[string]bool{}
	for _, name := range one[[]string](f.db, brokerRepeated) {
		repeated[name] = true
	}
	for _, name := range slices.Concat(twice["kafka"], twice["nats"]) {
		require.True(f.t, repeated[name], "%s is twice in the broker, and was attempted once", name)
	}
	return fmt.Sprintf("%d events accepted, for Kafka and NATS each; stored twice: %d in Kafka, %d in NATS; %d lost, "+
		"%d changed; %d stored without a response to the publisher", f.accepted.Load(), len(twice["kafka"]),
		len(twice["nats"]), len(v.Lost), len(v.Changed), len(v.Unacknowledged))
}

// Events for Kafka and NATS are neither lost nor changed when nodes and brokers are killed at any moment.
func TestFaultBrokers(t *testing.T) {
	t.Parallel()
	kills, rounds, events, backlog := []string{"kafka", "node", "nats"}, 1, 600, int64(400)
	db := migratedDatabase(t)
	if *faults {
		kills, rounds, events, backlog = []string{"node", "kafka", "node", "nats"}, 10, 50_000, 3000
		_, db = ownCluster(t)
	}
	began := time.Now()
	f := newBrokerFaults(t, db, backlog)
	f.run(slices.Repeat(kills, rounds), events)
	summary := f.requireNothingLost()
	count := map[string]int{}
	for _, what := range kills {
		count[what] += rounds
	}
	t.Logf("%d kills of nodes, %d of Kafka, %d of leaders in NATS in %s; %s", count["node"], count["kafka"],
		count["nats"], time.Since(began).Round(100*time.Millisecond), summary)
}
