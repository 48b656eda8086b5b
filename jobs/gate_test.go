package jobs_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/testnode"
)

// One endpoint hangs with a backlog of many times the workers: the others are served, and none of its deliveries is
// lost.
func TestHangingEndpointHoldsFewWorkers(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	const workers, backlog = 20, 200
	var inFlight, most atomic.Int64
	open := make(chan struct{})
	release := sync.OnceFunc(func() { close(open) })
	hanging := newEndpoint(t, func(w http.ResponseWriter, _ request) {
		if now := inFlight.Add(1); now > most.Load() {
			most.Store(now)
		}
		<-open
		inFlight.Add(-1)
		w.WriteHeader(http.StatusOK)
	})
	t.Cleanup(release) // before the endpoint closes and waits for its requests
	healthy := newEndpoint(t, func(w http.ResponseWriter, _ request) { w.WriteHeader(http.StatusOK) })
	only := func(eventType string) func(*catalog.SubscriptionSpec) {
		return func(s *catalog.SubscriptionSpec) { s.Filter.IncludedEventTypes = []string{eventType} }
	}
	subscribe(t, tn, "hanging", hanging.URL, only("test"))
	subscribe(t, tn, "healthy", healthy.URL, only("other"))
	useWorkers(t, tn, workers)
	publishMany(t, tn, backlog)
	tn.Start(t)
	tn.Become(t, 1, "SELECT (count(*) >= $1)::int FROM postrider_internal.deliveries WHERE hold = 'admission'",
		backlog-workers*4)

	for i := range 30 {
		publishBody(t, tn, "application/json",
			"["+strings.Replace(eventGridBody(fmt.Sprint("other-", i), "{}"), `"test"`, `"other"`, 1)+"]")
	}
	tn.AttemptsMade(t, 30)

	require.Len(t, healthy.requests(), 30)
	require.LessOrEqual(t, most.Load(), int64(workers/2))
	release()
	tn.AttemptsMade(t, backlog)
	require.Equal(t, backlog+30, tn.Rows(t, "deliveries", "state = 'delivered' AND attempts = 1"))
}

// Every worker waits for an endpoint, and further deliveries wait for a worker: publishes are still accepted.
func TestPublishesAreAcceptedWhileNoWorkerIsFree(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	open := make(chan struct{})
	release := sync.OnceFunc(func() { close(open) })
	hanging := newEndpoint(t, func(w http.ResponseWriter, _ request) {
		<-open
		w.WriteHeader(http.StatusOK)
	})
	t.Cleanup(release) // before the endpoint closes and waits for its requests
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
	release()
	tn.AttemptsMade(t, 2*subscriptions)
	testnode.Within(t, `tn.System.Backpressure.Lag() == 0`, func() bool { return tn.System.Backpressure.Lag() == 0 })
}
