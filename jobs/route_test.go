package jobs_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/node"
	"postrider/jobs"
	"postrider/jobs/publish"
)

// misrouted counts pairs of event and event subscription with no delivery or more than one, if every event matches all.
const misrouted = `
SELECT count(*) FROM (
    SELECT FROM postrider.events e CROSS JOIN postrider.event_subscriptions s
      LEFT JOIN postrider.deliveries d ON d.system_id = e.system_id AND d.subscription = s.subscription
     GROUP BY e.system_id, s.subscription HAVING count(d.delivery_id) <> 1) wrong`

const deliveredQuery = "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered'"

// routing is a bundle whose publishes are routed from 11 deliveries on.
func routing(t *testing.T) *bundle {
	t.Helper()
	b := setup(t)
	b.store, _ = newStoreWith(t, b.url, node.Options{Node: "node-r", RouteThreshold: 10})
	return b
}

func (b *bundle) subscribeMany(t *testing.T, n int, url string) {
	t.Helper()
	for i := range n {
		b.subscribe(t, fmt.Sprintf("sub-%d", i), url, nil)
	}
}

// publishAtOnce stores n events with one request.
func (b *bundle) publishAtOnce(t *testing.T, prefix string, n int) *publish.Receipt {
	t.Helper()
	events := make([]string, n)
	for i := range events {
		events[i] = eventGridBody(fmt.Sprintf("%s-%d", prefix, i), "{}")
	}
	return b.publish(t, "application/json", "["+strings.Join(events, ",")+"]")
}

func (b *bundle) requireDeliveredOnce(t *testing.T, e *endpoint, deliveries int) {
	t.Helper()
	b.become(t, deliveries, deliveredQuery)
	require.Zero(t, b.count(t, misrouted), "each event has one delivery for each event subscription")
	require.Len(t, e.requests(), deliveries)
	require.Zero(t, b.count(t, "SELECT count(*) FROM postrider_internal.routes"))
}

func TestRoutedEventsAreDelivered(t *testing.T) {
	t.Parallel()
	b := routing(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	b.subscribeMany(t, 4, e.URL)
	b.start(t, nil)
	require.Equal(t, 80, b.publishAtOnce(t, "e", 20).Deliveries())
	require.Equal(t, 8, b.publishAtOnce(t, "few", 2).Deliveries())
	b.requireDeliveredOnce(t, e, 88)
}

func TestTwoNodesRoute(t *testing.T) {
	t.Parallel()
	b := routing(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	b.subscribeMany(t, 11, e.URL)
	for _, node := range []string{"node-2", "node-3"} {
		s, _ := newStore(t, b.url, node)
		engine := b.newEngine(t, s, nil)
		require.NoError(t, engine.Start(t.Context()))
		t.Cleanup(func() { requireStops(t, engine) })
	}
	for i := range 40 {
		b.publishAtOnce(t, fmt.Sprint(i), 1)
	}
	b.requireDeliveredOnce(t, e, 440)
}

func TestRouteOfADeadNodeIsReclaimed(t *testing.T) {
	t.Parallel()
	b := routing(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	b.subscribeMany(t, 11, e.URL)
	b.publishAtOnce(t, "e", 2)
	b.exec(t, "UPDATE postrider_internal.river_job SET state = 'running', attempt = 1, attempted_at = now(), "+
		"attempted_by = '{dead}'")
	b.start(t, nil)
	b.requireDeliveredOnce(t, e, 22)
}

// A stop does not wait for a step that the database blocks, and the step is made only once.
func TestStopDuringAStep(t *testing.T) {
	t.Parallel()
	b := routing(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	b.subscribeMany(t, 11, e.URL)
	b.publishAtOnce(t, "e", 2)
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "LOCK TABLE postrider_internal.rollup_deltas IN SHARE MODE")
	require.NoError(t, err)
	other, _ := newStore(t, b.url, "node-2")
	engine := b.newEngine(t, other, func(o *jobs.Options) { o.StopTimeout = 100 * time.Millisecond })
	require.NoError(t, engine.Start(t.Context()))
	require.Eventually(t, func() bool {
		return b.count(t,
			"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%after_subscription%'") > 0
	}, waitTimeout, tick)
	requireStops(t, engine)
	require.NoError(t, tx.Rollback(t.Context()))

	b.start(t, nil)
	b.requireDeliveredOnce(t, e, 22)
}

// Event subscriptions that were deleted or paused after the publish and before the routing.
func TestRoutedEventsFollowChanges(t *testing.T) {
	t.Parallel()
	b := routing(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	b.subscribeMany(t, 3, e.URL)
	b.publishAtOnce(t, "e", 10)
	require.NoError(t, b.store.Subscriptions.Delete(t.Context(), topicName, "sub-0"))
	b.pause(t, "sub-1")
	b.start(t, nil)
	b.become(t, 10, deliveredQuery+" AND subscription = 'sub-2'")
	require.Equal(t, 10, b.count(t, heldQuery+" AND subscription = 'sub-1'"))
	require.Zero(t, b.count(t, "SELECT count(*) FROM postrider.deliveries WHERE subscription = 'sub-0'"))
	b.resume(t, "sub-1")
	b.become(t, 20, deliveredQuery)
	require.Len(t, e.delivered(), 20)
}

// With the default threshold: the publisher does not wait until 10,100 deliveries are created.
func TestVeryManyDeliveries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	b.subscribeMany(t, 100, e.URL)
	b.attempts = make(chan jobs.AttemptReport, 20_000)
	receipt := b.publishAtOnce(t, "e", 101)
	require.Equal(t, 10_100, receipt.Deliveries())
	require.Zero(t, b.count(t, "SELECT count(*) FROM postrider_internal.deliveries"))
	b.start(t, nil)
	b.attemptsMade(t, 10_100)
	b.requireDeliveredOnce(t, e, 10_100)
}

// The events of a transaction are delivered when it commits, even if their ids are older than those of delivered
// events.
func TestPublishedBySQL(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	b.subscribe(t, "all", e.URL, nil)
	b.start(t, nil)
	const publish = `SELECT postrider.publish('orders', jsonb_build_object('id', $1::text, 'eventType', 'A', 'subject',
		    ''))`
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), publish, "first")
	require.NoError(t, err)
	for i := range 20 {
		b.exec(t, publish, fmt.Sprint(i))
	}
	b.become(t, 20, deliveredQuery)
	require.NoError(t, tx.Commit(t.Context()))
	b.become(t, 21, deliveredQuery)
	require.Len(t, e.requests(), 21)
	require.Equal(t, 21, b.count(t, "SELECT count(*) FROM postrider.events WHERE matched = 1"))
}
