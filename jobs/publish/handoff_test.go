package publish_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/jobs/publish"
	"postrider/jobs/queue"
	"postrider/policy"
)

// openHandoff lets a store's workers take the jobs of its publishes, as the start of an engine does.
func openHandoff(s *node.System) { s.Handoff.Open(time.Second, time.Second) }

// localJobs are the jobs that a node's publishes gave to its workers. No worker stays reserved.
func localJobs(t *testing.T, s *node.System) []*queue.Work {
	t.Helper()
	jobs, reserved := s.Handoff.Waiting()
	require.Zero(t, reserved, "each reservation is ended")
	return jobs
}

// handingOff is a node whose publishes hand at most most jobs to its workers, of one group.
func handingOff(t *testing.T, most int) *testnode.Node {
	t.Helper()
	tn := testnode.Unchecked(t)
	o := node.Options{Node: "node-configured", MaxWorkers: 2 * most}
	tn.System = tn.Prepared(t, o, openHandoff).System
	tn.Topic(t, "orders")
	return tn
}

const runningHere = "SELECT count(*) FROM postrider_internal.river_job WHERE state = 'running' AND attempt = 1 " +
	"AND attempted_by = '{node-configured}' AND attempted_at = scheduled_at"

func TestPublishOffersItsJobsToTheLocalHandoff(t *testing.T) {
	t.Parallel()
	tn := handingOff(t, 3)
	tn.Subscribe(t, "orders", "one", nil)
	tn.Subscribe(t, "orders", "two", nil)
	body := []byte(`{"id":"e","subject":"s","eventType":"t","eventTime":"2026-01-01T00:00:00Z","data":{}}`)
	e := event.Event{Schema: event.EventGrid, ID: "e", Type: "t", Subject: "s", Body: body}
	tn.Send(t, testnode.Of("orders", e, e))
	sent := string(body)
	for i := range body {
		body[i] = 'x' // the request's memory is used again
	}
	local := localJobs(t, tn.System)
	require.Len(t, local, 3, "as many as were requested; the fourth is to be fetched")
	require.Equal(t, 3, tn.Count(t, runningHere))
	require.Equal(t, 1, tn.Jobs(t, "state = 'available' AND attempt = 0"))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	for _, h := range local {
		loaded, err := tn.System.Loader.Load(t.Context(), argsOf(h), queue.JobToken{JobID: h.Job.JobID})
		require.NoError(t, err)
		fresh, own := loaded.Members[0], h.Members[0]
		require.Equal(t, sent, string(own.Event.Body))
		require.Equal(t, fresh.Event, own.Event, "the same as if it had been loaded")
		require.Equal(t, loaded.Job.JobID, h.Job.JobID)
		require.Equal(t, fresh.SystemID, own.SystemID)
		require.True(t, fresh.TimeToLiveSince.Equal(own.TimeToLiveSince))
		require.True(t, loaded.NextAttemptAt.Equal(h.NextAttemptAt))
		require.Equal(t, loaded.Probations, h.Probations)
		require.WithinDuration(t, loaded.Now(), h.Now(), time.Minute)
		loaded.Release()
		h.Release()
	}
}

// A delivery that must wait, or needs more than the publish knows, is fetched from the queue.
func TestJobsThatTheLocalHandoffDoesNotTake(t *testing.T) {
	t.Parallel()
	tn := handingOff(t, 100)
	tn.Subscribe(t, "orders", "paused", nil)
	tn.Subscribe(t, "orders", "batches", testnode.Batching(10, 64))
	failing := tn.Subscribe(t, "orders", "failing",
		func(s *catalog.SubscriptionSpec) { s.EndpointURL = "https://example.com/failing" })
	tn.Pause(t, "orders", "paused")
	tn.Exec(t, "INSERT INTO postrider_internal.probations (probation_key, endpoint_base_url, failures_in_a_row) VALUES "+
		"($1, '', 1)", failing.EndpointHash)
	tn.Publish(t, "orders", "e", 3)
	require.Empty(t, localJobs(t, tn.System))
	require.Zero(t, tn.Count(t, runningHere))
	require.Equal(t, 3, tn.Pending(t, "hold = 'paused'"))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

// Jobs that were not committed are not offered, and their memory is released.
func TestFailedPublishOffersNoJobs(t *testing.T) {
	t.Parallel()
	tn := handingOff(t, 100)
	tn.Subscribe(t, "orders", "all", nil)
	used := tn.System.Memory.InUse()
	_, err := tn.System.Publisher.Publish(t.Context(), poison())
	require.ErrorIs(t, err, postgres.ErrPoison)
	require.Empty(t, localJobs(t, tn.System))
	require.Equal(t, used, tn.System.Memory.InUse())

	tn.Publish(t, "orders", "e", 2)
	require.Greater(t, tn.System.Memory.InUse(), used)
	for _, h := range localJobs(t, tn.System) {
		h.Release()
	}
	require.Equal(t, used, tn.System.Memory.InUse())
	_, err = tn.System.Publisher.Publish(t.Context(), publish.Publication{Topic: "gone"})
	require.ErrorIs(t, err, postgres.ErrNotFound)
}

// Bodies that find no memory are loaded when there is some.
func TestHandoffIsBoundedByMemory(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	small := tn.Prepared(t, node.Options{Node: "node-small", MaxBodyBytes: 1, MaxWorkers: 200}, openHandoff).System
	tn.Topic(t, "orders")
	tn.Subscribe(t, "orders", "all", nil)
	require.NoError(t, small.Cache.Reload(t.Context()))
	_, err := small.Publisher.Publish(t.Context(), testnode.BigPublication("orders", 5, 400<<10))
	require.NoError(t, err)
	require.Empty(t, localJobs(t, small), "there is just enough to load one")
	require.Equal(t, 5, tn.Jobs(t, "state = 'available'"))
}

// While the catalog keeps moving, a publish filters by the one that its transaction reads, which the process does not
// have yet. Holds and attempts use the same catalog.
func TestPublishByACatalogThatIsNewerThanTheOneInMemory(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{"optimistic": "", "keyed": "a-key"} {
		tn := testnode.WithTopic(t)
		never := func(s *catalog.SubscriptionSpec) { s.RetryPolicy.Policy = "ga-2018" }
		tn.Subscribe(t, "orders", "resting", never)
		tn.Subscribe(t, "orders", "calm", never)
		behind := storeAtRest(t, tn.URL)
		behind.Handoff.Open(time.Second, time.Second)
		behind.Publisher.FilterInTransactions()
		go behind.Publisher.Run(t.Context())
		tn.PutPolicy(t, testnode.CopyNamed(t, policy.DefaultName, "new"))
		tn.Subscribe(t, "orders", "resting", func(s *catalog.SubscriptionSpec) { s.RetryPolicy.Policy = "new" })
		tn.Subscribe(t, "orders", "calm", func(s *catalog.SubscriptionSpec) {
			s.RetryPolicy.Policy = "new"
			s.EndpointURL = "https://example.org/calm"
		})
		tn.Rest(t, "resting")

		p := testnode.Publication("orders", "e", 1)
		p.IdempotencyKey = key
		_, err := behind.Publisher.Publish(t.Context(), p)
		require.NoError(t, err, name)
		require.Equal(t, 1, tn.Rows(t, "deliveries", "subscription = 'resting' AND hold = 'probation'"),
			"%s: it may not be tried", name)
		local := localJobs(t, behind)
		require.Len(t, local, 1, name)
		loaded, err := tn.System.Loader.Load(t.Context(), argsOf(local[0]), queue.JobToken{JobID: local[0].Job.JobID})
		require.NoError(t, err)
		require.NotEmpty(t, loaded.Probations)
		require.Equal(t, loaded.Probations, local[0].Probations, "%s: the same as if it had been loaded by the new one", name)
		loaded.Release()
		local[0].Release()
	}
}

// storeAtRest is a store that does not run: its catalog stays as it is.
func storeAtRest(t *testing.T, url string) *node.System {
	t.Helper()
	pool, err := postgres.OpenPool(t.Context(), url, 2)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	sealer, err := postgres.NewSealer(testnode.Key)
	require.NoError(t, err)
	s, err := node.New(t.Context(), node.Options{Pool: pool, Sealer: sealer, Node: "node-at-rest", MaxWorkers: 200})
	require.NoError(t, err)
	return s
}

// argsOf names the delivery of a local job.
func argsOf(local *queue.Work) queue.AttemptArgs {
	return queue.AttemptArgs{Delivery: local.Members[0].DeliveryID, Subscription: local.SubscriptionID}
}
