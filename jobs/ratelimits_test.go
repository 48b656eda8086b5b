package jobs_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/node"
	"postrider/internal/testnode"
	"postrider/jobs/queue"
)

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

// A probe takes no time of the limit. The deliveries that the probation held do.
func TestDeliveryRateAfterAProbation(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newSwitchable(t, http.StatusServiceUnavailable)
	copyPolicy(t, tn, "ga-2021", "touchy", `{"probation_trigger":1}`)
	subscribe(t, tn, "all", e.URL, func(s *catalog.SubscriptionSpec) {
		daily(3)(s)
		under("touchy")(s)
	})
	tn.Start(t)
	publishFailing(t, tn, 1)
	publishMany(t, tn, 6)
	tn.Become(t, 6, inProbation)
	e.status.Store(http.StatusOK)
	passHold(t, tn)
	tn.Become(t, 3, delivered)
	require.Equal(t, 3, tn.Count(t, waiting+" AND attempts = 0"))
	require.Len(t, e.requests(), 4)
}

// An operator's retry and redelivery wait for their times, too.
func TestDeliveryRateOfAnOperatorsRetry(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newSwitchable(t, http.StatusServiceUnavailable)
	subscribe(t, tn, "all", e.URL, daily(2))
	tn.Start(t)
	publishFailing(t, tn, 1)
	e.status.Store(http.StatusBadRequest)
	publishFailing(t, tn, 1)
	require.NoError(t, tn.System.Operator.RetryNow(t.Context(), int64(tn.Count(t, pendingDelivery))))
	tn.Exec(t, "SELECT postrider.redeliver(dead_letter_id) FROM postrider.dead_letters")
	tn.Become(t, 2, waiting)
	require.Len(t, e.requests(), 2)
	e.status.Store(http.StatusOK)
	subscribe(t, tn, "all", e.URL, nil)
	tn.Become(t, 2, delivered)
}

// A job that a dead node had keeps its time. A delivery whose job was lost takes another one.
func TestDeliveryRateAfterACrash(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	sub := subscribe(t, tn, "all", e.URL, daily(3))
	publishMany(t, tn, 4)
	rate, _ := tn.System.Cache.Snapshot().Rate(sub.ID)
	for range 2 { // the first one inserts the limit's row
		_, err := tn.System.Releaser.RefillLimited(t.Context(), sub, rate, 0, 100)
		require.NoError(t, err)
	}
	require.Equal(t, 3, tn.Jobs(t, ""))
	tn.Exec(t, "INSERT INTO postrider_internal.nodes (id, beat, host, version) VALUES ('dead', 7, 'h', 'v')")
	runOn(t, tn, "dead", "all")
	tn.Exec(t, "DELETE FROM postrider_internal.river_job WHERE id = (SELECT max(id) FROM postrider_internal.river_job)")
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = time_to_live_since - interval '2 minutes', "+
		"next_attempt_at = next_attempt_at - interval '2 minutes'")
	tn.Start(t)
	tn.Become(t, 2, delivered)
	tn.Become(t, 2, rateLimited)
	require.Len(t, e.requests(), 2)
}

// A node without workers publishes within the limits, too.
func TestDeliveryRateOnANodeWithoutWorkers(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, daily(3))
	tn.Start(t)
	worker := tn.System
	tn.System = tn.Beside(t, node.Options{Node: "api", MaxWorkers: -1}).System
	publishMany(t, tn, 5)
	tn.Become(t, 3, delivered)
	require.Equal(t, 2, tn.Count(t, rateLimited))
	tn.System = worker
	require.Len(t, e.requests(), 3)
}

// A job that finds its endpoint busy returns its time: it does not wait for the next one, 8 hours later.
func TestBusyEndpointKeepsTheTimes(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 2} {
		t.Run(fmt.Sprint("batches of ", batch), func(t *testing.T) {
			t.Parallel()
			tn := setup(t)
			e, h := newHanging(t, respondWith(http.StatusOK))
			subscribe(t, tn, "all", e.URL, func(s *catalog.SubscriptionSpec) {
				daily(3)(s)
				s.MaxEventsPerBatch, s.MaxConcurrentDeliveries = &batch, new(1)
			})
			tn.Start(t)
			publishMany(t, tn, 4*batch)
			await(t, h.begun)
			tn.Become(t, 3*batch, waiting)
			h.letGo()
			tn.Become(t, 3*batch, delivered)
			require.Equal(t, batch, tn.Count(t, rateLimited))
			require.Equal(t, 1, tn.Count(t, nextTimeIsLate))
		})
	}
}

const nextTimeIsLate = `
SELECT count(*) FROM postrider_internal.delivery_rates WHERE next_at > now() + interval '7 hours'`

// The job of an expired delivery has no time: it returns none when it finds its endpoint busy.
func TestExpiredDeliveriesReturnNoTime(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e, h := newHanging(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, func(s *catalog.SubscriptionSpec) {
		daily(1)(s)
		s.MaxConcurrentDeliveries = new(1)
	})
	tn.Start(t)
	publishMany(t, tn, 1)
	await(t, h.begun)
	publishMany(t, tn, 1)
	tn.Become(t, 1, waiting)
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = now() - interval '2 days' "+
		"WHERE hold IS NOT NULL")
	tn.Become(t, 1, "SELECT count(*) FROM postrider_internal.deliveries WHERE hold = 'admission'")
	h.letGo()
	tn.BecomeRows(t, 1, "dead_letters", "reason = 'TimeToLiveExceeded'")
	require.Equal(t, 1, tn.Count(t, nextTimeIsLate))
}

// A batch that is larger than the burst makes the next one wait, also if that is published later.
func TestBatchInDebtKeepsTheLimit(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	a := &arrivals{}
	e := newEndpoint(t, a.respond(true))
	subscribe(t, tn, "all", e.URL, func(s *catalog.SubscriptionSpec) {
		s.DeliveryRate = &endpointconf.DeliveryRate{Limit: 100, Burst: new(1), Count: endpointconf.RateOfEvents}
		s.MaxEventsPerBatch = new(50)
	})
	tn.Start(t)
	began := time.Now()
	for i := range 3 {
		publishMany(t, tn, 50)
		tn.Become(t, (i+1)*50, delivered)
	}
	a.requireAtMost(t, began, 100, 50)
	require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider_internal.delivery_rates WHERE next_at >= $1",
		began.Add(1500*time.Millisecond)), "150 events at 100/s")
}

// Deliveries whose time to live ends before their turn take no time of the limit.
func TestDeliveryRateLeavesWhatExpires(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	sub := subscribe(t, tn, "all", "https://example.com", daily(2))
	publishMany(t, tn, 5)
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = now() - interval '86399.9 seconds' "+
		"WHERE id <= 3")
	rate, _ := tn.System.Cache.Snapshot().Rate(sub.ID)
	for range 2 { // the first one inserts the limit's row
		_, err := tn.System.Releaser.RefillLimited(t.Context(), sub, rate, 0, 100)
		require.NoError(t, err)
	}
	require.Equal(t, 2, tn.Pending(t, "hold IS NULL AND id > 3"))
	require.Equal(t, 3, tn.Count(t, rateLimited))
}

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
	rate, _ := tn.System.Cache.Snapshot().Rate(sub.ID)
	for range 5 {
		_, err := tn.System.Releaser.RefillLimited(t.Context(), sub, rate, 0, 100)
		require.NoError(t, err)
		tn.Exec(t, "UPDATE postrider_internal.delivery_rates SET next_at = '-infinity'")
	}
	tn.Exec(t, "UPDATE postrider_internal.river_job SET scheduled_at = now()")
	require.Greater(t, tn.Jobs(t, ""), 90)
	began := time.Now()
	tn.Start(t)
	tn.Become(t, 120, delivered)
	a.requireAtMost(t, began, 50/0.8, 1)
}

// A delivery that was paused, and then waited for the limit until it expired, names the limit.
func TestDeliveryRateIsNamedAfterAPause(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, daily(1))
	tn.Start(t)
	pause(t, tn, "all")
	publishMany(t, tn, 3)
	resume(t, tn, "all")
	tn.Become(t, 1, delivered)
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = now() - interval '25 hours'")
	tn.BecomeRows(t, 2, "dead_letters", "last_error = 'its time to live ended while it waited for the rate limit of 1 "+
		"request/day'")
}

// Batches leave out what has expired, too.
func TestDeliveryRateOfBatchesLeavesWhatExpires(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	sub := subscribe(t, tn, "all", "https://example.com", func(s *catalog.SubscriptionSpec) {
		daily(1)(s)
		s.MaxEventsPerBatch = new(3)
	})
	publishMany(t, tn, 5)
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = now() - interval '25 hours' WHERE id <= 3")
	require.NoError(t, tn.System.Loader.Cut(t.Context(), sub, limitedCutter(t, tn, sub), 1))
	const inBatch = "SELECT count(*) FROM postrider_internal.deliveries WHERE batch_id IS NOT NULL AND "
	require.Equal(t, 2, tn.Count(t, inBatch+"id > 3"))
	require.Zero(t, tn.Count(t, inBatch+"id <= 3"))
}

// limitedCutter releases held deliveries to a batch cutter with one time of their limit.
func limitedCutter(t *testing.T, tn *testnode.Node, sub *catalog.Subscription) (cutter queue.JobToken) {
	t.Helper()
	rate, _ := tn.System.Cache.Snapshot().Rate(sub.ID)
	for range 2 { // the first one inserts the limit's row
		_, err := tn.System.Releaser.RefillLimited(t.Context(), sub, rate, 0, 100)
		require.NoError(t, err)
	}
	require.NoError(t, tn.Pool.QueryRow(t.Context(), "SELECT id, created_at FROM postrider_internal.river_job").
		Scan(&cutter.JobID, &cutter.CreatedAt))
	return cutter
}

// A batch cutter that finds nothing returns its time.
func TestUnusedCutterReturnsItsTime(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	sub := subscribe(t, tn, "all", "https://example.com", func(s *catalog.SubscriptionSpec) {
		daily(1)(s)
		s.MaxEventsPerBatch = new(3)
	})
	publishMany(t, tn, 1)
	cutter := limitedCutter(t, tn, sub)
	require.Equal(t, 1, tn.Count(t, nextTimeIsLate))
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = now() - interval '25 hours'")
	require.ErrorIs(t, tn.System.Loader.Cut(t.Context(), sub, cutter, 1), queue.ErrJobGone)
	require.Zero(t, tn.Count(t, nextTimeIsLate))
}
