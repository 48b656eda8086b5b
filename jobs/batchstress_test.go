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
	"postrider/internal/testnode"
	"postrider/jobs"
)

// Nodes start and stop while the event subscription is paused and resumed and the endpoint fails every third time. What
// they leave behind, one that lasts delivers: every event arrives, and the records are consistent.
func TestBatchesThroughStopsPausesAndFailures(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, func(w http.ResponseWriter, _ request) {
		if rand.IntN(3) == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusOK)
	})
	copyPolicy(t, tn, "ga-2021", "brief",
		`{"steps":["1 second"],"tail":"1 second","default_max_attempts":null,"probation_trigger":1000000}`)
	tn.Exec(t, "UPDATE postrider_internal.retry_policy_cells SET min_delay = '0' WHERE policy = 'brief'")
	require.NoError(t, tn.System.Cache.Reload(t.Context()))
	subscribe(t, tn, "all", e.URL, both(batching(20, 64), under("brief")))

	const requests, events = 60, 15
	var nodes sync.WaitGroup
	for n := range 2 {
		nodes.Go(func() { restartEngines(t, tn, fmt.Sprint("brief-", n), 4) })
	}
	for i := range requests {
		publishAtOnce(t, tn, fmt.Sprint(i), events)
		if i%20 == 10 {
			pause(t, tn, "all")
		}
		if i%20 == 15 {
			resume(t, tn, "all")
		}
		<-time.After(time.Duration(rand.IntN(40)) * time.Millisecond) // pauses, stops and publishes meet in any order
	}
	nodes.Wait()
	tn.Start(t)
	tn.Become(t, requests*events, "SELECT count(*) FROM postrider_internal.delivery_history WHERE state = 'delivered'")
	arrived := map[string]bool{}
	for _, r := range e.requests() {
		for _, id := range r.ids(t) {
			arrived[id] = true
		}
	}
	require.Len(t, arrived, requests*events)
	swept, err := tn.System.Maintenance.Sweep(context.Background())
	require.NoError(t, err)
	require.Equal(t, jobs.Swept{}, swept)
}

// restartEngines runs one engine after the other, each for about a second, and cuts its attempts at its end.
func restartEngines(t *testing.T, tn *testnode.Node, name string, lives int) {
	for life := range lives {
		s := tn.Beside(t, node.Options{Node: fmt.Sprintf("%s-%d", name, life), MaxWorkers: 20})
		engine := s.Engine(t, func(o *jobs.Options) { o.StopTimeout = 20 * time.Millisecond })
		require.NoError(t, engine.Start(t.Context()))
		<-time.After(time.Duration(500+rand.IntN(1000)) * time.Millisecond)
		testnode.RequireStops(t, engine)
	}
}
