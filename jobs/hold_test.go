package jobs_test

import (
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/testnode"
	"postrider/policy"
)

func pause(t *testing.T, tn *testnode.Node, name string) {
	t.Helper()
	_, err := tn.System.Holds.Pause(t.Context(), topicName, name, nil)
	require.NoError(t, err)
}

func resume(t *testing.T, tn *testnode.Node, name string) {
	t.Helper()
	_, err := tn.System.Holds.Resume(t.Context(), topicName, name)
	require.NoError(t, err)
}

const heldQuery = "SELECT count(*) FROM postrider.deliveries WHERE hold = 'paused'"

func TestPausedSubscriptionWaitsAndIsReleased(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	endpoint := newEndpoint(t, func(w http.ResponseWriter, _ request) { w.WriteHeader(http.StatusOK) })
	other := newEndpoint(t, func(w http.ResponseWriter, _ request) { w.WriteHeader(http.StatusOK) })
	subscribe(t, tn, "billing", endpoint.URL, nil)
	subscribe(t, tn, "other", other.URL, nil)
	tn.Start(t)
	pause(t, tn, "billing")
	for _, id := range []string{"a", "b", "c"} {
		publishOne(t, tn, id)
	}
	tn.AttemptsMade(t, 3) // of the other event subscription
	require.Equal(t, 3, tn.Count(t, heldQuery))
	require.Empty(t, endpoint.requests())

	resume(t, tn, "billing")
	tn.AttemptsMade(t, 3)

	require.Len(t, endpoint.requests(), 3)
	require.Equal(t, 6, tn.Rows(t, "deliveries", "state = 'delivered' AND attempts = 1"))
}

// A job from before the pause finds it at its due check: the delivery waits, without an attempt.
func TestJobOfAPausedSubscriptionIsHeld(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	status := make(chan int, 2)
	status <- http.StatusInternalServerError
	status <- http.StatusOK
	endpoint := newEndpoint(t, func(w http.ResponseWriter, _ request) { w.WriteHeader(<-status) })
	subscribe(t, tn, "billing", endpoint.URL, nil)
	tn.Start(t)
	publishOne(t, tn, "a")
	tn.Attempt(t)
	pause(t, tn, "billing")
	require.Equal(t, 1, travel(t, tn))
	tn.Become(t, 1, heldQuery)
	require.Equal(t, 1, tn.Rows(t, "deliveries", "attempts = 1 AND state = 'pending'"), "a held due check is no attempt")

	resume(t, tn, "billing")
	require.Equal(t, policy.Delivered, tn.Attempt(t).Verdict.Action)

	require.Len(t, endpoint.requests(), 2)
	require.Equal(t, "1", endpoint.requests()[1].header.Get("Aeg-Delivery-Count"))
}

// A local job waits for the gate, and obeys a pause that was confirmed meanwhile.
func TestPauseReachesLocalJobs(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	arrived, response := make(chan struct{}, 2), make(chan struct{})
	endpoint := newEndpoint(t, func(http.ResponseWriter, request) { arrived <- struct{}{}; <-response })
	respond := sync.OnceFunc(func() { close(response) })
	t.Cleanup(respond) // the endpoint does not close before
	one := 1
	subscribe(t, tn, "billing", endpoint.URL, func(s *catalog.SubscriptionSpec) { s.MaxConcurrentDeliveries = &one })
	tn.Start(t)
	publishOne(t, tn, "first")
	await(t, arrived)
	publishOne(t, tn, "second")
	// Both are local jobs, unless others were due: then the second one is fetched and waits for the gate, too.
	tn.Become(t, 2, "SELECT count(*) FROM postrider_internal.river_job WHERE state = 'running'")
	pause(t, tn, "billing")
	respond()
	tn.AttemptsMade(t, 1)
	tn.Become(t, 1, heldQuery)
	require.Len(t, endpoint.requests(), 1)
	resume(t, tn, "billing")
	tn.AttemptsMade(t, 1)
	require.Equal(t, 2, tn.Rows(t, "deliveries", "state = 'delivered' AND attempts = 1"))
}

// The time to live continues during a pause: under at_ttl the delivery ends at that moment, still paused.
func TestHeldDeliveryExpires(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	endpoint := newEndpoint(t, func(w http.ResponseWriter, _ request) { w.WriteHeader(http.StatusOK) })
	minute := 1
	subscribe(t, tn, "billing", endpoint.URL, func(s *catalog.SubscriptionSpec) {
		s.RetryPolicy.Policy, s.RetryPolicy.EventTimeToLiveInMinutes = "ga-2018", &minute
	})
	tn.Start(t)
	pause(t, tn, "billing")
	publishOne(t, tn, "old")
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = time_to_live_since - interval '1 minute', "+
		"next_attempt_at "+
		"= next_attempt_at - interval '1 minute'")
	publishOne(t, tn, "young")

	tn.BecomeRows(t, 1, "dead_letters", "event_id = 'old' AND reason = 'TimeToLiveExceeded' AND attempts = 0")
	require.Equal(t, 1, tn.Count(t, heldQuery), "the young one goes on waiting")
	require.Empty(t, endpoint.requests())
}
