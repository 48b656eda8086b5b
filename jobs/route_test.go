package jobs_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/node"
	"postrider/internal/testnode"
	"postrider/jobs"
	"postrider/jobs/publish"
)

// misrouted counts pairs of event and event subscription with no delivery or more than one, if every event matches all.
const misrouted = `
SELECT count(*) FROM (
    SELECT FROM postrider.events e CROSS JOIN postrider.event_subscriptions s
      LEFT JOIN postrider.deliveries d ON d.system_id = e.system_id AND d.subscription = s.subscription
     GROUP BY e.system_id, s.subscription HAVING count(d.delivery_id) <> 1) wrong`

// routing is a node whose publishes are routed from 11 deliveries on.
func routing(t *testing.T) *testnode.Node {
	t.Helper()
	tn := setup(t)
	tn.System = tn.Beside(t, node.Options{Node: "node-r", RouteThreshold: 10}).System
	return tn
}

func subscribeMany(t *testing.T, tn *testnode.Node, n int, url string) {
	t.Helper()
	for i := range n {
		subscribe(t, tn, fmt.Sprintf("sub-%d", i), url, nil)
	}
}

// publishAtOnce stores n events with one request: prefix-0, prefix-1, …
func publishAtOnce(t *testing.T, tn *testnode.Node, prefix string, n int) *publish.Receipt {
	t.Helper()
	return tn.Publish(t, topicName, prefix, n)
}

func requireDeliveredOnce(t *testing.T, tn *testnode.Node, e *endpoint, deliveries int) {
	t.Helper()
	tn.Become(t, deliveries, delivered)
	require.Zero(t, tn.Count(t, misrouted), "each event has one delivery for each event subscription")
	require.Len(t, e.requests(), deliveries)
	require.Zero(t, tn.Routes(t, ""))
}

func TestRoutedEventsAreDelivered(t *testing.T) {
	t.Parallel()
	tn := routing(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribeMany(t, tn, 4, e.URL)
	tn.Start(t)
	require.Equal(t, 80, publishAtOnce(t, tn, "e", 20).Deliveries())
	require.Equal(t, 8, publishAtOnce(t, tn, "few", 2).Deliveries())
	requireDeliveredOnce(t, tn, e, 88)
}

// A stop does not wait for a step that the database blocks, and the step is made only once.
func TestStopDuringAStep(t *testing.T) {
	t.Parallel()
	tn := routing(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribeMany(t, tn, 11, e.URL)
	publishAtOnce(t, tn, "e", 2)
	unlock := tn.OpenTransaction(t, "LOCK TABLE postrider_internal.rollup_deltas IN SHARE MODE")
	other := tn.Beside(t, node.Options{Node: "node-2"})
	engine := other.Engine(t, func(o *jobs.Options) { o.StopTimeout = 100 * time.Millisecond })
	require.NoError(t, engine.Start(t.Context()))
	testnode.Within(t, "the step waits", func() bool {
		return tn.Count(t,
			"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%after_subscription%'") > 0
	})
	testnode.RequireStops(t, engine)
	unlock(false)

	tn.Start(t)
	requireDeliveredOnce(t, tn, e, 22)
}

// The events of a transaction are delivered when it commits, even if their ids are older than those of delivered
// events.
func TestPublishedBySQL(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, nil)
	tn.Start(t)
	const publish = `SELECT postrider.publish('orders', jsonb_build_object('id', $1::text, 'eventType', 'A', 'subject',
		    ''))`
	end := tn.OpenTransaction(t, publish, "first")
	for i := range 20 {
		tn.Exec(t, publish, fmt.Sprint(i))
	}
	tn.Become(t, 20, delivered)
	end(true)
	tn.Become(t, 21, delivered)
	require.Len(t, e.requests(), 21)
	require.Equal(t, 21, tn.Rows(t, "events", "matched = 1"))
}
