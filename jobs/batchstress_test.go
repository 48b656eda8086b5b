package jobs_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/node"
	"postrider/jobs"
)

// Nodes start and stop, the event subscription is paused and resumed, and the endpoint fails every third time: every
// event arrives, and the records are consistent.
func TestBatchesThroughStopsPausesAndFailures(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := newEndpoint(t, func(w http.ResponseWriter, _ request) {
		if rand.IntN(3) == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusOK)
	})
	b.copyPolicy(t, "ga-2021", "brief",
		`{"steps":["1 second"],"tail":"1 second","default_max_attempts":null,"probation_trigger":1000000}`)
	b.exec(t, "UPDATE postrider_internal.retry_policy_cells SET min_delay = '0' WHERE policy = 'brief'")
	require.NoError(t, b.store.Cache.Reload(t.Context()))
	b.subscribe(t, "all", e.URL, both(batching(20, 64), under("brief")))

	const requests, events = 60, 15
	stop := make(chan struct{})
	var nodes sync.WaitGroup
	for n := range 2 {
		nodes.Go(func() { b.restartEngines(t, fmt.Sprint("node-", n), stop) })
	}
	for i := range requests {
		b.publishAtOnce(t, fmt.Sprint(i), events)
		if i%20 == 10 {
			b.pause(t, "all")
		}
		if i%20 == 15 {
			b.resume(t, "all")
		}
		<-time.After(time.Duration(rand.IntN(40)) * time.Millisecond) // pauses, stops and publishes meet in any order
	}
	t.Cleanup(func() { t.Log(b.left(t)) })
	b.become(t, requests*events, "SELECT count(*) FROM postrider_internal.delivery_history WHERE state = 'delivered'")
	close(stop)
	nodes.Wait()
	arrived := map[string]bool{}
	for _, r := range e.requests() {
		for _, id := range r.ids(t) {
			arrived[id] = true
		}
	}
	require.Len(t, arrived, requests*events)
	swept, err := b.store.Maintenance.Sweep(context.Background())
	require.NoError(t, err)
	require.Equal(t, jobs.Swept{}, swept)
}

// restartEngines runs one engine after the other, each for about a second, and cuts its attempts at its end.
func (b *bundle) restartEngines(t *testing.T, name string, stop <-chan struct{}) {
	for life := 0; ; life++ {
		s, _ := newStoreWith(t, b.url, node.Options{Node: fmt.Sprintf("%s-%d", name, life), MaxWorkers: 20})
		engine := b.newEngine(t, s, func(o *jobs.Options) { o.StopTimeout = 20 * time.Millisecond })
		require.NoError(t, engine.Start(t.Context()))
		select {
		case <-time.After(time.Duration(500+rand.IntN(1000)) * time.Millisecond):
			requireStops(t, engine)
		case <-stop:
			requireStops(t, engine)
			return
		}
	}
}

// left describes the pending deliveries, for a test that fails.
func (b *bundle) left(t *testing.T) (left string) {
	t.Helper()
	require.NoError(t,
		b.pool.QueryRow(context.WithoutCancel(t.Context()), `SELECT format('open %s, in batches %s, held %s, alone %s',
		count(*) FILTER (WHERE num_nonnulls(job_id, batch_id, hold) = 0), count(batch_id), count(hold), count(job_id))
		FROM postrider_internal.deliveries`).Scan(&left))
	return left
}
