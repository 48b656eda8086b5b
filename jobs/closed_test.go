package jobs_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/node"
	"postrider/internal/testnode"
	"postrider/jobs/queue"
	"postrider/policy"
)

const closedQuery = "SELECT count(*) FROM postrider.delivery_rates WHERE closed_until > now()"

// visits are the requests to an endpoint, which responds to the first ones as a test says.
type visits struct {
	mu      sync.Mutex
	began   []time.Time
	ended   []time.Time
	respond func(n int, w http.ResponseWriter)
}

func newVisits(t *testing.T, respond func(n int, w http.ResponseWriter)) (*endpoint, *visits) {
	t.Helper()
	v := &visits{respond: respond}
	return newEndpoint(t, func(w http.ResponseWriter, _ request) {
		v.mu.Lock()
		n := len(v.began)
		v.began, v.ended = append(v.began, time.Now()), append(v.ended, time.Time{})
		v.mu.Unlock()
		v.respond(n, w)
		v.mu.Lock()
		v.ended[n] = time.Now()
		v.mu.Unlock()
	}), v
}

// requireAfter requires that request n began so long after another one had ended.
func (v *visits) requireAfter(t *testing.T, n, other int, wait time.Duration) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	require.GreaterOrEqual(t, v.began[n].Sub(v.ended[other]), wait, "request %d after request %d", n, other)
}

// Retry-After closes the endpoint for all its deliveries, on all nodes, until its time. Then one request tries. Another
// Retry-After closes it again; a success opens it. Other endpoints go on meanwhile.
func TestRetryAfterClosesTheEndpoint(t *testing.T) {
	t.Parallel()
	tn, tried, opens := setup(t), make(chan struct{}), make(chan struct{})
	open := sync.OnceFunc(func() { close(opens) })
	e, v := newVisits(t, func(n int, w http.ResponseWriter) {
		switch n {
		case 0, 1:
			w.Header().Set("Retry-After", "2")
			w.WriteHeader([]int{http.StatusServiceUnavailable, http.StatusTooManyRequests}[n])
		case 2:
			close(tried)
			<-opens
		}
	})
	t.Cleanup(open) // before the endpoint closes and waits for its requests
	closed := subscribe(t, tn, "closed", e.URL, only("test"))
	subscribe(t, tn, "others", newEndpoint(t, respondWith(http.StatusOK)).URL, only("other"))
	tn.Start(t)
	other := startNode(t, tn, "node-2", nil)

	publishOne(t, tn, "first")
	tn.Attempt(t)
	for _, n := range []*testnode.Node{tn, other} {
		testnode.Within(t, "each node knows it", func() bool {
			return n.System.Closed.State(closed.ID) != queue.EndpointOpen
		})
	}
	publishMany(t, tn, 10)
	tn.Become(t, 10, rateLimited)
	tn.Attempt(t) // the second one
	await(t, tried)
	for i := range 3 {
		publishOther(t, tn, fmt.Sprint("other-", i))
		tn.Attempt(t)
	}
	require.Len(t, e.requests(), 3, "one request tries")
	open()
	tn.AttemptsMade(t, 9)
	// The first two may have been attempted again by now, on a slow machine.
	tn.BecomeRows(t, 12, "deliveries", "state = 'delivered' AND attempts = 1")
	tn.Become(t, 0, closedQuery)
	v.requireAfter(t, 1, 0, 1900*time.Millisecond)
	v.requireAfter(t, 2, 1, 1900*time.Millisecond)
	for n := 3; n < 11; n++ {
		v.requireAfter(t, n, 2, 0)
	}
}

// 429 without Retry-After closes an endpoint for a second if no other request is in flight. Under a policy with a
// probation for Busy, it starts none.
func TestThrottledAloneClosesTheEndpoint(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e, v := newVisits(t, func(n int, w http.ResponseWriter) {
		if n < 2 {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	subscribe(t, tn, "all", e.URL, both(under("namespace-2023"), delivering(event.CloudEvents)))
	tn.Start(t)
	publishOne(t, tn, "first")
	tn.Attempt(t)
	publishMany(t, tn, 10)
	tn.AttemptsMade(t, 10)
	v.requireAfter(t, 1, 0, 900*time.Millisecond)
	v.requireAfter(t, 2, 1, 900*time.Millisecond)
	for n := 3; n < 11; n++ {
		v.requireAfter(t, n, 2, 0)
	}
	require.Zero(t, tn.Rows(t, "delivery_attempts", "hold = 'probation'"))
	require.Equal(t, 2, tn.Rows(t, "delivery_attempts", "status = 429 AND why LIKE '%; lowers the concurrency'"))
}

// One node's request tries a half-open endpoint. If it ends unsent, or its node dies, another one tries.
func TestTrialOfAnEndpoint(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	sub := subscribe(t, tn, "all", "https://example.com", nil)
	other := tn.Beside(t, node.Options{Node: "node-2"}).System
	sample := func() {
		for _, s := range []*queue.Traffic{tn.System.Traffic, other.Traffic} {
			_, err := s.SampleTraffic(t.Context())
			require.NoError(t, err)
		}
	}
	enter := func(c *queue.ClosedEndpoints, wantOpen bool) *queue.Trial {
		open, trial, err := c.Enter(t.Context(), sub.ID)
		require.NoError(t, err)
		require.Equal(t, wantOpen, open)
		return trial
	}
	passes := func() {
		tn.Exec(t, "UPDATE postrider_internal.delivery_rates SET closed_until = now() - interval '1 s'")
		sample()
	}
	require.Nil(t, enter(tn.System.Closed, true))
	tn.System.Closed.Close(sub, time.Hour)
	require.NoError(t, tn.System.Closed.Store(t.Context()))
	sample()
	require.Nil(t, enter(tn.System.Closed, false))
	require.Nil(t, enter(other.Closed, false))
	passes()
	first := enter(tn.System.Closed, true)
	require.NotNil(t, first)
	require.Nil(t, enter(tn.System.Closed, false))
	require.Nil(t, enter(other.Closed, false))
	passes() // the node dies
	second := enter(other.Closed, true)
	require.NotNil(t, second)
	require.NoError(t, tn.System.Closed.EndTrial(t.Context(), first, true, 0))
	require.Equal(t, 1, tn.Count(t, closedQuery), "a lost trial changes nothing")
	require.NoError(t, other.Closed.EndTrial(t.Context(), second, false, 0))
	sample()
	third := enter(tn.System.Closed, true)
	require.NotNil(t, third)
	tn.System.Closed.Close(sub, time.Hour) // an older request ends
	require.NoError(t, tn.System.Closed.EndTrial(t.Context(), third, true, 0))
	require.Nil(t, enter(tn.System.Closed, false), "the wait is not stored yet")
	require.NoError(t, tn.System.Closed.Store(t.Context()))
	passes()
	fourth := enter(tn.System.Closed, true)
	require.NotNil(t, fourth)
	tn.System.Closed.Close(sub, time.Hour)
	require.NoError(t, tn.System.Closed.Store(t.Context()))
	require.NoError(t, tn.System.Closed.EndTrial(t.Context(), fourth, true, 0))
	require.Nil(t, enter(tn.System.Closed, false), "the wait is stored")
	passes()
	require.NoError(t, tn.System.Closed.EndTrial(t.Context(), enter(tn.System.Closed, true), true, 0))
	sample()
	require.Nil(t, enter(tn.System.Closed, true))
	require.Nil(t, enter(other.Closed, true))
}

// A wait that the endpoint requests takes no last attempt, also if the event subscription has its own limit.
func TestClosedEndpointGetsLastAttempts(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	for _, batch := range []int{1, 2} {
		e := newEndpoint(t, func(w http.ResponseWriter, r request) {
			if strings.Contains(r.body, `"closes"`) {
				w.Header().Set("Retry-After", "3000")
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		subscribe(t, tn, fmt.Sprint("batches-of-", batch), e.URL, func(s *catalog.SubscriptionSpec) {
			daily(3)(s)
			s.MaxEventsPerBatch, s.ResponseTimeoutInSeconds = &batch, new(230)
		})
	}
	tn.Start(t)
	publishOne(t, tn, "closes")
	tn.AttemptsMade(t, 2)
	tn.Become(t, 2, closedQuery)
	const events = 5
	publishMany(t, tn, events)
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = now() - interval '86280 seconds' "+
		"WHERE attempts = 0")
	const sent = 2*1 + 2*2 // the third time of the limit was the first one's
	tn.BecomeRows(t, sent, "deliveries", "state = 'delivered'")
	tn.BecomeRows(t, 2*events-sent, "deliveries", "hold = 'rate_limited' AND attempts = 0")
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = now() - interval '25 hours' "+
		"WHERE attempts = 0")
	tn.BecomeRows(t, 2*events-sent, "dead_letters", "attempts = 0 "+
		"AND last_error = 'its time to live ended while it waited for the rate limit of 3 requests/day'")
}

// Deliveries that have jobs wait, too, once the endpoint has requested it, with a limit and without one.
func TestRetryAfterStopsDeliveriesWithJobs(t *testing.T) {
	t.Parallel()
	limit := &endpointconf.DeliveryRate{Limit: 1000}
	rows := map[string]struct {
		rate  *endpointconf.DeliveryRate
		batch int
	}{"limit": {limit, 1}, "no-limit": {nil, 1}, "batches-with-a-limit": {limit, 2}, "batches": {nil, 2}}
	tn := setup(t)
	endpoints := map[string]*endpoint{}
	var release []func()
	for name, row := range rows {
		e, h := newHanging(t, func(w http.ResponseWriter, _ request) {
			w.Header().Set("Retry-After", "3000")
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		endpoints[name], release = e, append(release, h.unblock)
		subscribe(t, tn, name, e.URL, func(s *catalog.SubscriptionSpec) {
			s.DeliveryRate, s.MaxEventsPerBatch, s.MaxConcurrentDeliveries = row.rate, &row.batch, new(1)
		})
	}
	publishMany(t, tn, 50)
	tn.Start(t)
	tn.Become(t, len(rows), `SELECT count(*) FROM (SELECT FROM postrider_internal.river_job WHERE state = 'running'
		GROUP BY args ->> 's' HAVING count(*) > 1) waiting`)
	for _, unblock := range release {
		unblock()
	}
	tn.AttemptsMade(t, len(rows))
	for name, row := range rows {
		tn.Become(t, 50-row.batch, waiting+" AND subscription = $1", name)
		require.Len(t, endpoints[name].requests(), 1, name)
	}
}

// Behavior documented does not know that the endpoint is closed for other event subscriptions. The wait is capped.
func TestDocumentedIgnoresThatTheEndpointIsClosed(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, func(w http.ResponseWriter, _ request) {
		w.Header().Set("Retry-After", "86400")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	subscribe(t, tn, "safe", e.URL, nil)
	subscribe(t, tn, "documented", e.URL, func(s *catalog.SubscriptionSpec) { s.Behavior = policy.BehaviorDocumented })
	tn.Start(t)
	publishOne(t, tn, "closes")
	tn.Become(t, 1, closedQuery+" AND closed_until <= now() + interval '1 hour'")
	publishMany(t, tn, 10)
	const attempted = "SELECT count(*) FROM postrider.deliveries WHERE attempts = 1 AND subscription = $1"
	tn.Become(t, 11, attempted, "documented")
	tn.Become(t, 10, "SELECT count(*) FROM postrider_internal.deliveries WHERE hold = 'rate_limited'")
	require.Equal(t, 1, tn.Count(t, attempted, "safe"))
}

// One endpoint hangs with a backlog of many times the workers: the others are served, and none of its deliveries is
// lost.
func TestHangingEndpointHoldsFewWorkers(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	const workers, backlog = 20, 200
	hanging, h := newHanging(t, respondWith(http.StatusOK))
	healthy := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "hanging", hanging.URL, only("test"))
	subscribe(t, tn, "healthy", healthy.URL, only("other"))
	useWorkers(t, tn, workers)
	publishMany(t, tn, backlog)
	tn.Start(t)
	tn.Become(t, 1, "SELECT (count(*) >= $1)::int FROM postrider_internal.deliveries WHERE hold = 'admission'",
		backlog-workers*4)

	for i := range 30 {
		publishOther(t, tn, fmt.Sprint("other-", i))
	}
	tn.AttemptsMade(t, 30)

	require.Len(t, healthy.requests(), 30)
	require.LessOrEqual(t, len(h.begun), workers/2)
	h.unblock()
	tn.AttemptsMade(t, backlog)
	require.Equal(t, backlog+30, tn.Rows(t, "deliveries", "state = 'delivered' AND attempts = 1"))
}

// Every worker waits for an endpoint, and further deliveries wait for a worker: publishes are still accepted.
func TestPublishesAreAcceptedWhileNoWorkerIsFree(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	hanging, h := newHanging(t, respondWith(http.StatusOK))
	const workers, subscriptions = 4, 6
	for i := range subscriptions {
		subscribe(t, tn, fmt.Sprint("hanging-", i), fmt.Sprint(hanging.URL, "/", i), nil)
	}
	useWorkers(t, tn, workers)
	publishMany(t, tn, 1)
	tn.Exec(t, `UPDATE postrider_internal.river_job SET created_at = now() - interval '1 minute',
		scheduled_at = now() - interval '1 minute'`)
	tn.Start(t)
	testnode.Within(t, `tn.System.Backpressure.Lag() > time.Second`,
		func() bool { return tn.System.Backpressure.Lag() > time.Second })
	publishMany(t, tn, 1)
	h.unblock()
	tn.AttemptsMade(t, 2*subscriptions)
	testnode.Within(t, `tn.System.Backpressure.Lag() == 0`, func() bool { return tn.System.Backpressure.Lag() == 0 })
}

// lockedFor is how long these tests lock a row: longer than any lock_timeout (2 s, and 0.5 s in the recorder) and than
// many retries of a blocked result (0.25 s each).
func lockedFor() time.Duration {
	if *faults {
		return time.Minute
	}
	return 4 * time.Second
}

// A user of psql locks a job row and a probation's row. Meanwhile each event that is published reaches the endpoint
// "other" at once.
func TestLockedRowsDelayOnlyTheirDeliveries(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	slow, h := newHanging(t, respondWith(http.StatusOK))
	bad := newEndpoint(t, respondWith(http.StatusInternalServerError))
	copyPolicy(t, tn, "ga-2021", "touchy", `{"probation": {"trigger": 3}}`)
	sub := subscribe(t, tn, "slow", slow.URL, only("other"))
	subscribe(t, tn, "bad", bad.URL, both(under("touchy"), only("test")))
	subscribe(t, tn, "other", newEndpoint(t, respondWith(http.StatusOK)).URL, only("test"))
	tn.Start(t)
	publishOther(t, tn, "locked")
	await(t, h.begun)
	publishOne(t, tn, "first")
	tn.AttemptsMade(t, 2)
	failed := func() int { return tn.Rows(t, "delivery_attempts", "subscription = 'bad'") }
	require.Equal(t, 1, failed())

	unlock := tn.OpenTransaction(t,
		"SELECT FROM postrider_internal.river_job WHERE (args ->> 's')::bigint = $1 FOR UPDATE", sub.ID)
	unlockProbation := tn.OpenTransaction(t, "SELECT FROM postrider_internal.probations FOR UPDATE")
	h.unblock()
	pace := time.NewTicker(100 * time.Millisecond)
	defer pace.Stop()
	last := time.Now().Add(lockedFor())
	for i := 0; time.Now().Before(last); i++ {
		id := fmt.Sprint("meanwhile-", i)
		publishOne(t, tn, id)
		for report := tn.Attempt(t); report.Subscription != "other" || report.EventID != id; {
			report = tn.Attempt(t)
		}
		<-pace.C
	}
	unlock(true) // the rows were locked throughout
	unlockProbation(true)

	tn.BecomeRows(t, 0, "deliveries", "state = 'pending' AND subscription = 'slow'")
	tn.Become(t, 1, "SELECT least(count(*), 1) FROM postrider_internal.probations WHERE since IS NOT NULL")
	require.Greater(t, failed(), 1)
}
