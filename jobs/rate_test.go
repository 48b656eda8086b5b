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
	"postrider/internal/node"
	"postrider/internal/testnode"
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
	rows := map[string]struct {
		rate      endpointconf.DeliveryRate
		batch     int
		perSecond float64
		burst     int // with what a batch may exceed
	}{
		"single":  {endpointconf.DeliveryRate{Limit: 100, Burst: new(1)}, 1, 100, 1},
		"burst":   {endpointconf.DeliveryRate{Limit: 60, Burst: new(40)}, 1, 60, 40},
		"slow":    {endpointconf.DeliveryRate{Limit: 300, PeriodInSeconds: new(10)}, 1, 30, 8},
		"batches": {endpointconf.DeliveryRate{Limit: 20, Burst: new(1)}, 10, 20, 1},
		"events-of-batches": {
			endpointconf.DeliveryRate{Limit: 100, Burst: new(1), Count: endpointconf.RateOfEvents},
			10,
			100, 10,
		},
		"more-than-a-bucket": {
			endpointconf.DeliveryRate{Limit: 50, Burst: new(5), Count: endpointconf.RateOfEvents},
			30, 50,
			34,
		},
	}
	seen := map[string]*arrivals{}
	for name, row := range rows {
		seen[name] = &arrivals{}
		e := newEndpoint(t, seen[name].respond(row.rate.Count == endpointconf.RateOfEvents))
		subscribe(t, tn, name, e.URL, func(s *catalog.SubscriptionSpec) {
			s.DeliveryRate, s.MaxEventsPerBatch = &row.rate, &row.batch
		})
	}
	other := tn.Beside(t, node.Options{Node: "node-2"})
	tn.Start(t)
	second := other.Engine(t)
	require.NoError(t, second.Start(t.Context()))
	t.Cleanup(func() { testnode.RequireStops(t, second) })
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
				Limit: limit, Burst: new(limit / 20),
				Scope: endpointconf.RatePerEndpoint,
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
	require.Equal(t, 2, travel(t, tn))
	tn.BecomeRows(t, 20, "deliveries", "hold = 'rate_limited'")
	limit(&endpointconf.DeliveryRate{Limit: 1, PeriodInSeconds: new(20_000)}) // the next time is hours away
	limit(&endpointconf.DeliveryRate{Limit: 10, Burst: new(1)})               // now within a second
	tn.AttemptsMade(t, 4)
	limit(nil)
	tn.AttemptsMade(t, 16)
	require.Equal(t, 2, tn.Rows(t, "deliveries", "attempts = 2"))
}
