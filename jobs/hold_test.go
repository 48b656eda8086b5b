package jobs_test

import (
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/policy"
)

func (b *bundle) pause(t *testing.T, name string) {
	t.Helper()
	_, err := b.store.Holds.Pause(t.Context(), topicName, name, nil)
	require.NoError(t, err)
}

func (b *bundle) resume(t *testing.T, name string) {
	t.Helper()
	_, err := b.store.Holds.Resume(t.Context(), topicName, name)
	require.NoError(t, err)
}

const heldQuery = "SELECT count(*) FROM postrider.deliveries WHERE hold = 'paused'"

func TestPausedSubscriptionWaitsAndIsReleased(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpoint := newEndpoint(t, func(w http.ResponseWriter, _ request) { w.WriteHeader(http.StatusOK) })
	other := newEndpoint(t, func(w http.ResponseWriter, _ request) { w.WriteHeader(http.StatusOK) })
	b.subscribe(t, "billing", endpoint.URL, nil)
	b.subscribe(t, "other", other.URL, nil)
	b.start(t, nil)
	b.pause(t, "billing")
	for _, id := range []string{"a", "b", "c"} {
		b.publishOne(t, id)
	}
	b.attemptsMade(t, 3) // of the other event subscription
	require.Equal(t, 3, b.count(t, heldQuery))
	require.Empty(t, endpoint.requests())

	b.resume(t, "billing")
	b.attemptsMade(t, 3)

	require.Len(t, endpoint.requests(), 3)
	require.Equal(t, 6, b.count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered' AND attempts = 1"))
}

// A job from before the pause finds it at its due check: the delivery waits, without an attempt.
func TestJobOfAPausedSubscriptionIsHeld(t *testing.T) {
	t.Parallel()
	b := setup(t)
	status := make(chan int, 2)
	status <- http.StatusInternalServerError
	status <- http.StatusOK
	endpoint := newEndpoint(t, func(w http.ResponseWriter, _ request) { w.WriteHeader(<-status) })
	b.subscribe(t, "billing", endpoint.URL, nil)
	b.start(t, nil)
	b.publishOne(t, "a")
	b.attempt(t)
	b.pause(t, "billing")
	require.Equal(t, 1, b.travel(t))
	b.become(t, 1, heldQuery)
	require.Equal(t, 1, b.count(t, "SELECT count(*) FROM postrider.deliveries WHERE attempts = 1 AND state = 'pending'"),
		"a held due check is no attempt")

	b.resume(t, "billing")
	require.Equal(t, policy.Delivered, b.attempt(t).Verdict.Action)

	require.Len(t, endpoint.requests(), 2)
	require.Equal(t, "1", endpoint.requests()[1].header.Get("Aeg-Delivery-Count"))
}

// A local job waits for the gate, and obeys a pause that was confirmed meanwhile.
func TestPauseReachesLocalJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	arrived, response := make(chan struct{}, 2), make(chan struct{})
	endpoint := newEndpoint(t, func(http.ResponseWriter, request) { arrived <- struct{}{}; <-response })
	respond := sync.OnceFunc(func() { close(response) })
	t.Cleanup(respond) // the endpoint does not close before
	one := 1
	b.subscribe(t, "billing", endpoint.URL, func(s *catalog.SubscriptionSpec) { s.MaxConcurrentDeliveries = &one })
	b.start(t, nil)
	b.publishOne(t, "first")
	<-arrived
	b.publishOne(t, "second")
	// Both are local jobs, unless others were due: then the second one is fetched and waits for the gate, too.
	b.become(t, 2, "SELECT count(*) FROM postrider_internal.river_job WHERE state = 'running'")
	b.pause(t, "billing")
	respond()
	b.attemptsMade(t, 1)
	b.become(t, 1, heldQuery)
	require.Len(t, endpoint.requests(), 1)
	b.resume(t, "billing")
	b.attemptsMade(t, 1)
	require.Equal(t, 2, b.count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered' AND attempts = 1"))
}

// An attempt in flight when its event subscription is paused finishes, and its result counts.
func TestPauseLeavesTheAttemptInFlight(t *testing.T) {
	t.Parallel()
	b := setup(t)
	arrived, response := make(chan struct{}), make(chan struct{})
	endpoint := newEndpoint(t, func(w http.ResponseWriter, _ request) {
		close(arrived)
		<-response
		w.WriteHeader(http.StatusOK)
	})
	b.subscribe(t, "billing", endpoint.URL, nil)
	b.start(t, nil)
	b.publishOne(t, "a")
	<-arrived
	b.pause(t, "billing")
	close(response)
	require.Equal(t, policy.Delivered, b.attempt(t).Verdict.Action)
	require.Equal(t, 1, b.count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered'"))
}

// The time to live continues during a pause: under at_ttl the delivery ends at that moment, still paused.
func TestHeldDeliveryExpires(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpoint := newEndpoint(t, func(w http.ResponseWriter, _ request) { w.WriteHeader(http.StatusOK) })
	minute := 1
	b.subscribe(t, "billing", endpoint.URL, func(s *catalog.SubscriptionSpec) {
		s.RetryPolicy.Policy, s.RetryPolicy.EventTimeToLiveInMinutes = "ga-2018", &minute
	})
	b.start(t, nil)
	b.pause(t, "billing")
	b.publishOne(t, "old")
	b.exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = time_to_live_since - interval '1 minute', "+
		"next_attempt_at "+
		"= next_attempt_at - interval '1 minute'")
	b.publishOne(t, "young")

	b.become(t, 1, "SELECT count(*) FROM postrider.dead_letters WHERE event_id = 'old' "+
		"AND reason = 'TimeToLiveExceeded' AND attempts = 0")
	require.Equal(t, 1, b.count(t, heldQuery), "the young one goes on waiting")
	require.Empty(t, endpoint.requests())
}

// Held deliveries of a deleted event subscription are canceled like the others.
func TestDeletingAPausedSubscriptionCancelsItsDeliveries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe(t, "billing", "http://127.0.0.1:9/", nil)
	b.start(t, nil)
	b.pause(t, "billing")
	b.publishOne(t, "a")
	require.NoError(t, b.store.Subscriptions.Delete(t.Context(), topicName, "billing"))
	require.Equal(t, 1, b.count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'canceled'"))
}
