package jobs_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/node"
	"postrider/internal/testdb"
	"postrider/internal/testnode"
	"postrider/jobs"
	"postrider/jobs/queue"
)

// arrivals are the times at which an endpoint received events, from the first one on.
type arrivals struct {
	mu    sync.Mutex
	times []time.Time
}

// respond notes one arrival for each request, or for each event.
func (a *arrivals) respond(perEvent bool) func(http.ResponseWriter, request) {
	return func(w http.ResponseWriter, r request) {
		var events []json.RawMessage
		n := 1
		if err := json.Unmarshal([]byte(r.body), &events); err == nil && perEvent {
			n = len(events)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		for range n {
			a.times = append(a.times, time.Now())
		}
		w.WriteHeader(http.StatusOK)
	}
}

// requireAtMost requires that no more than burst and perSecond have arrived at any time since began. A busy machine
// makes requests late, never early.
func (a *arrivals) requireAtMost(t *testing.T, began time.Time, perSecond float64, burst int) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, at := range a.times {
		allowed := float64(burst) + at.Sub(began).Seconds()*perSecond
		require.LessOrEqual(t, float64(i+1), allowed+1, "arrival %d after %v", i, at.Sub(began))
	}
}

// Two nodes deliver to event subscriptions with different limits, each to its own endpoint.
func TestDeliveryRate(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	type rate = endpointconf.DeliveryRate
	rows := map[string]struct {
		rate      rate
		batch     int
		perSecond float64
		burst     int // with what a batch may exceed
	}{
		"single":             {rate{Limit: 100, Burst: new(1)}, 1, 100, 1},
		"burst":              {rate{Limit: 60, Burst: new(40)}, 1, 60, 40},
		"slow":               {rate{Limit: 300, PeriodInSeconds: new(10)}, 1, 30, 8},
		"batches":            {rate{Limit: 20, Burst: new(1)}, 10, 20, 1},
		"events-of-batches":  {rate{Limit: 100, Burst: new(1), Count: endpointconf.RateOfEvents}, 10, 100, 10},
		"more-than-a-bucket": {rate{Limit: 50, Burst: new(5), Count: endpointconf.RateOfEvents}, 30, 50, 34},
	}
	seen := map[string]*arrivals{}
	for name, row := range rows {
		seen[name] = &arrivals{}
		e := newEndpoint(t, seen[name].respond(row.rate.Count == endpointconf.RateOfEvents))
		subscribe(t, tn, name, e.URL, func(s *catalog.SubscriptionSpec) {
			s.DeliveryRate, s.MaxEventsPerBatch = &row.rate, &row.batch
		})
	}
	tn.Start(t)
	startNode(t, tn, "node-2", nil)
	const events = 150
	began := time.Now()
	publishMany(t, tn, events)
	tn.BecomeRows(t, len(rows)*events, "deliveries", "state = 'delivered' AND attempts = 1")
	for name, row := range rows {
		t.Log(name)
		seen[name].requireAtMost(t, began, row.perSecond, row.burst)
		const attempts = "SELECT count(*) FROM postrider.delivery_attempts WHERE subscription = $1 AND "
		require.Positive(t, tn.Count(t, attempts+"hold = 'rate_limited'", name), name)
		require.Zero(t,
			tn.Count(t, attempts+"why LIKE '%; waited for %' AND started_at < due_at + interval '1 s'", name), name)
		require.Positive(t, tn.Count(t, attempts+"why LIKE '%; waited for %'", name), name)
	}
}

// Event subscriptions whose endpoints have one host share the lowest of their limits.
func TestDeliveryRateOfAnEndpoint(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	a := &arrivals{}
	e := newEndpoint(t, a.respond(false))
	for i, limit := range []int{40, 4000} {
		subscribe(t, tn, fmt.Sprint("sub-", i), fmt.Sprint(e.URL, "/", i), func(s *catalog.SubscriptionSpec) {
			s.DeliveryRate = &endpointconf.DeliveryRate{
				Limit: limit, Burst: new(limit / 20), Scope: endpointconf.RatePerEndpoint,
			}
		})
	}
	tn.Start(t)
	began := time.Now()
	publishMany(t, tn, 40)
	tn.BecomeRows(t, 80, "deliveries", "state = 'delivered'")
	a.requireAtMost(t, began, 40, 2)
	require.Equal(t, 2, tn.Rows(t, "delivery_rates", "limit_per_second = 40 AND scope = 'endpoint'"))
}

// A release that waits for a lock, or fails, delays no release of another event subscription.
func TestReleasesDelayNoOther(t *testing.T) {
	t.Parallel()
	tn := testnode.Open(t, testdb.Clone(t)+"&lock_timeout=60s", node.Options{Node: "node-1", MaxWorkers: 100})
	putTopic(t, tn, topicName, catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: event.EventGrid})
	e := newEndpoint(t, respondWith(http.StatusOK))
	limit := func(s *catalog.SubscriptionSpec) {
		s.DeliveryRate = &endpointconf.DeliveryRate{Limit: 20, Burst: new(1)}
	}
	blocked := subscribe(t, tn, "blocked", e.URL, limit)
	failing := subscribe(t, tn, "failing", e.URL, limit)
	subscribe(t, tn, "limited", e.URL, limit)
	subscribe(t, tn, "paused", e.URL, nil)
	pause(t, tn, "paused")
	tn.Exec(t, fmt.Sprintf("ALTER TABLE postrider_internal.delivery_rates ADD CHECK (key <> 'subscription:%d')",
		failing.ID))
	end := tn.OpenTransaction(t,
		"INSERT INTO postrider_internal.delivery_rates (key) VALUES ('subscription:' || $1::bigint)", blocked.ID)
	const events = 20
	publishMany(t, tn, events)
	tn.Start(t, func(o *jobs.Options) { o.SetReleaseTimeout(2 * testnode.Timeout) })
	const insert = "INSERT INTO postrider_internal.delivery_rates (key)"
	tn.AwaitLock(t, insert)
	const waitsSince = `SELECT query_start FROM pg_stat_activity WHERE datname = current_database()
		AND wait_event_type = 'Lock' AND strpos(query, $1) > 0`
	since := testnode.Value[time.Time](t, tn, waitsSince, insert)
	resume(t, tn, "paused")
	tn.BecomeRows(t, 2*events, "deliveries", "state = 'delivered' AND subscription IN ('limited', 'paused')")
	require.Equal(t, since, testnode.Value[time.Time](t, tn, waitsSince, insert), "the first release still waits")
	require.Equal(t, 2*events, tn.Rows(t, "deliveries", "state = 'pending'"))
	end(false)
	tn.BecomeRows(t, events, "deliveries", "state = 'delivered' AND subscription = 'blocked'")
}

// Retries wait for their times, too. A limit that is set later applies to queued jobs; without it all are released.
func TestDeliveryRateChanges(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusServiceUnavailable))
	withoutProbation(t, tn)
	subscribe(t, tn, "all", e.URL, nil)
	publishMany(t, tn, 20)
	limit := func(rate *endpointconf.DeliveryRate) {
		subscribe(t, tn, "all", e.URL, func(s *catalog.SubscriptionSpec) { s.DeliveryRate = rate })
	}
	limit(&endpointconf.DeliveryRate{Limit: 2, PeriodInSeconds: new(86_400), Burst: new(2)})
	tn.Start(t)
	tn.AttemptsMade(t, 2)
	tn.BecomeRows(t, 18, "deliveries", "hold = 'rate_limited'")
	require.Equal(t, 2, makeDue(t, tn))
	tn.BecomeRows(t, 20, "deliveries", "hold = 'rate_limited'")
	limit(&endpointconf.DeliveryRate{Limit: 1, PeriodInSeconds: new(20_000)}) // the next time is hours away
	limit(&endpointconf.DeliveryRate{Limit: 10, Burst: new(1)})               // now within a second
	tn.AttemptsMade(t, 4)
	limit(nil)
	tn.AttemptsMade(t, 16)
	require.Equal(t, 2, tn.Rows(t, "deliveries", "attempts = 2"))
}

// daily limits an event subscription to n requests a day, all of which may be made at once.
func daily(n int) func(*catalog.SubscriptionSpec) {
	return func(s *catalog.SubscriptionSpec) {
		s.DeliveryRate = &endpointconf.DeliveryRate{Limit: n, PeriodInSeconds: new(86_400), Burst: &n}
	}
}

const (
	rateLimited = "SELECT count(*) FROM postrider.deliveries WHERE hold = 'rate_limited'"
	waiting     = "SELECT count(*) FROM postrider.deliveries WHERE hold IS NOT NULL"
	delivered   = "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered'"
)

// refillLimited gives held deliveries the times of their limit.
func refillLimited(t *testing.T, tn *testnode.Node, sub *catalog.Subscription) {
	t.Helper()
	rate, _ := tn.System.Cache.Snapshot().Rate(sub.ID)
	_, err := tn.System.Releaser.RefillLimited(t.Context(), sub, rate, 0, 100)
	require.NoError(t, err)
}

// A probe takes no time of the limit. The deliveries that the probation held do, and so do an operator's retry and
// redelivery.
func TestDeliveryRateOfReleasedDeliveries(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e, other := newSwitchable(t, http.StatusServiceUnavailable), newSwitchable(t, http.StatusServiceUnavailable)
	copyPolicy(t, tn, "ga-2021", "touchy", `{"probation": {"trigger": 1}}`)
	subscribe(t, tn, "probed", e.URL, both(daily(3), under("touchy"), only("test")))
	subscribe(t, tn, "operated", other.URL, both(daily(2), only("other")))
	tn.Start(t)
	publishFailing(t, tn, 1)
	publishMany(t, tn, 6)
	tn.Become(t, 6, inProbation)
	e.status.Store(http.StatusOK)
	passHold(t, tn)
	tn.Become(t, 3, delivered)
	require.Equal(t, 3, tn.Count(t, waiting+" AND attempts = 0"))
	require.Len(t, e.requests(), 4)

	for i, status := range []int64{http.StatusServiceUnavailable, http.StatusBadRequest} {
		other.status.Store(status)
		publishOther(t, tn, fmt.Sprint(i))
		tn.BecomeRows(t, i+1, "delivery_attempts", "subscription = 'operated'")
	}
	id := int64(tn.Count(t, pendingDelivery+" AND subscription = 'operated'"))
	require.NoError(t, tn.System.Operator.RetryNow(t.Context(), id))
	tn.Exec(t, "SELECT postrider.redeliver(dead_letter_id) FROM postrider.dead_letters")
	tn.Become(t, 2, waiting+" AND subscription = 'operated'")
	require.Len(t, other.requests(), 2)
	other.status.Store(http.StatusOK)
	subscribe(t, tn, "operated", other.URL, only("other"))
	tn.BecomeRows(t, 2, "deliveries", "state = 'delivered' AND subscription = 'operated'")
}

// A job that a dead node had keeps its time. A delivery whose job was lost takes another one.
func TestDeliveryRateAfterACrash(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	sub := subscribe(t, tn, "all", e.URL, daily(3))
	publishMany(t, tn, 4)
	refillLimited(t, tn, sub)
	refillLimited(t, tn, sub) // the first one inserted the limit's row
	require.Equal(t, 3, tn.Jobs(t, ""))
	tn.Exec(t, "INSERT INTO postrider_internal.nodes (id, beat, host, version) VALUES ('dead', 7, 'h', 'v')")
	runOn(t, tn, "dead", "all")
	tn.Exec(t, "DELETE FROM postrider_internal.river_job WHERE id = (SELECT max(id) FROM postrider_internal.river_job)")
	tn.Exec(t, olderBy, "2 minutes")
	tn.Start(t)
	tn.Become(t, 2, delivered)
	tn.Become(t, 2, rateLimited)
	require.Len(t, e.requests(), 2)
}

// A node without workers publishes within the limits, too. A delivery that was paused, and then waited for the limit
// until it expired, names the limit.
func TestDeliveryRateOnANodeWithoutWorkers(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, daily(3))
	tn.Start(t)
	tn.System = tn.Beside(t, node.Options{Node: "api", MaxWorkers: -1}).System
	pause(t, tn, "all")
	publishMany(t, tn, 3)
	resume(t, tn, "all")
	tn.Become(t, 3, delivered)
	publishMany(t, tn, 2)
	pause(t, tn, "all")
	publishMany(t, tn, 1)
	resume(t, tn, "all")
	tn.Become(t, 3, rateLimited)
	require.Len(t, e.requests(), 3)
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = now() - interval '25 hours'")
	tn.BecomeRows(t, 3, "dead_letters", "last_error = "+
		"'its time to live ended while it waited for the rate limit of 3 requests/day'")
}

// A job that finds its endpoint busy returns its time: it does not wait for the next one, 8 hours later.
func TestBusyEndpointKeepsTheTimes(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	hung := map[int]*hanging{}
	for _, batch := range []int{1, 2} {
		e, h := newHanging(t, respondWith(http.StatusOK))
		hung[batch] = h
		subscribe(t, tn, fmt.Sprint("batches-of-", batch), e.URL, func(s *catalog.SubscriptionSpec) {
			daily(3)(s)
			s.MaxEventsPerBatch, s.MaxConcurrentDeliveries = &batch, new(1)
		})
	}
	tn.Start(t)
	const events = 8
	publishMany(t, tn, events)
	for _, h := range hung {
		await(t, h.begun)
	}
	tn.Become(t, 2*events-1-2, waiting)
	for _, h := range hung {
		h.unblock()
	}
	tn.Become(t, 3*1+3*2, delivered)
	for batch := range hung {
		require.Equal(t, events-3*batch, tn.Count(t, rateLimited+" AND subscription = 'batches-of-' || $1::int", batch))
	}
	require.Equal(t, len(hung), tn.Count(t, nextTimeIsLate))
}

// The job of an expired delivery has no time: it returns none when it finds its endpoint busy.
func TestExpiredDeliveriesReturnNoTime(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e, h := newHanging(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, both(daily(1),
		func(s *catalog.SubscriptionSpec) { s.MaxConcurrentDeliveries = new(1) }))
	tn.Start(t)
	publishMany(t, tn, 1)
	await(t, h.begun)
	publishMany(t, tn, 1)
	tn.Become(t, 1, waiting)
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = now() - interval '2 days' "+
		"WHERE hold IS NOT NULL")
	tn.Become(t, 1, "SELECT count(*) FROM postrider_internal.deliveries WHERE hold = 'admission'")
	h.unblock()
	tn.BecomeRows(t, 1, "dead_letters", "reason = 'TimeToLiveExceeded'")
	require.Equal(t, 1, tn.Count(t, nextTimeIsLate))
}

const nextTimeIsLate = `
SELECT count(*) FROM postrider_internal.delivery_rates WHERE next_at > now() + interval '7 hours'`

// Jobs that were not fetched at their times do not exceed the limit together.
func TestLateJobsKeepTheLimit(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	a := &arrivals{}
	e := newEndpoint(t, a.respond(false))
	sub := subscribe(t, tn, "all", e.URL, func(s *catalog.SubscriptionSpec) {
		s.DeliveryRate = &endpointconf.DeliveryRate{Limit: 50, Burst: new(1)}
	})
	publishMany(t, tn, 120)
	for tn.Jobs(t, "") <= 90 {
		refillLimited(t, tn, sub)
		tn.Exec(t, "UPDATE postrider_internal.delivery_rates SET next_at = '-infinity'")
	}
	tn.Exec(t, "UPDATE postrider_internal.river_job SET scheduled_at = now()")
	began := time.Now()
	tn.Start(t)
	tn.Become(t, 120, delivered)
	a.requireAtMost(t, began, 50/0.8, 1)
}

// Deliveries whose time to live ends before their turn take no time of the limit.
func TestDeliveryRateLeavesExpiringDeliveries(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	sub := subscribe(t, tn, "all", "https://example.com", daily(2))
	publishMany(t, tn, 5)
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = now() - interval '86399.9 seconds' "+
		"WHERE id <= 3")
	refillLimited(t, tn, sub)
	refillLimited(t, tn, sub) // the first one inserted the limit's row
	require.Equal(t, 2, tn.Pending(t, "hold IS NULL AND id > 3"))
	require.Equal(t, 3, tn.Count(t, rateLimited))
}

// Batches leave out what has expired, too.
func TestDeliveryRateLeavesExpiringBatches(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	sub := subscribe(t, tn, "all", "https://example.com", both(daily(1), batching(3, 64)))
	publishMany(t, tn, 5)
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = now() - interval '25 hours' WHERE id <= 3")
	cut, err := tn.System.Loader.Cut(t.Context(), sub, limitedCutter(t, tn, sub), 1)
	require.NoError(t, err)
	require.True(t, cut)
	const inBatch = "SELECT count(*) FROM postrider_internal.deliveries WHERE batch_id IS NOT NULL AND "
	require.Equal(t, 2, tn.Count(t, inBatch+"id > 3"))
	require.Zero(t, tn.Count(t, inBatch+"id <= 3"))
}

// limitedCutter releases held deliveries to a batch cutter with one time of their limit.
func limitedCutter(t *testing.T, tn *testnode.Node, sub *catalog.Subscription) (cutter queue.JobToken) {
	t.Helper()
	refillLimited(t, tn, sub)
	refillLimited(t, tn, sub) // the first one inserted the limit's row
	require.NoError(t, tn.Pool.QueryRow(t.Context(), "SELECT id, created_at FROM postrider_internal.river_job").
		Scan(&cutter.JobID, &cutter.CreatedAt))
	return cutter
}

// A batch cutter that finds nothing returns its time.
func TestUnusedCutterReturnsItsTime(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	sub := subscribe(t, tn, "all", "https://example.com", both(daily(1), batching(3, 64)))
	publishMany(t, tn, 1)
	cutter := limitedCutter(t, tn, sub)
	require.Equal(t, 1, tn.Count(t, nextTimeIsLate))
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = now() - interval '25 hours'")
	cut, err := tn.System.Loader.Cut(t.Context(), sub, cutter, 1)
	require.NoError(t, err)
	require.False(t, cut)
	require.Zero(t, tn.Jobs(t, ""))
	require.Zero(t, tn.Count(t, nextTimeIsLate))
}
