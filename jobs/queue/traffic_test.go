package queue_test

import (
	"testing"
	"time"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/node"
	"postrider/internal/testnode"
	"postrider/jobs/queue"
	"postrider/policy"

	"github.com/stretchr/testify/require"
)

const admissionQuery = "SELECT count(*) FROM postrider.deliveries WHERE hold = 'admission'"

// withCapacity opens a store that may queue so many jobs of each event subscription.
func withCapacity(t *testing.T, tn *testnode.Node, capacity func(subscription int64, others int) int) *node.System {
	t.Helper()
	return tn.Beside(t, node.Options{Node: "node-configured", QueueCapacity: capacity}).System
}

func publishTo(t *testing.T, tn *testnode.Node, s *node.System, prefix string, n int) {
	t.Helper()
	_, err := s.Publisher.Publish(t.Context(), testnode.Publication("orders", prefix, n))
	require.NoError(t, err)
}

// What finds too many jobs of its event subscription queued is stored without one, and is held, not lost.
func TestPublishAdmitsUpToTheCapacity(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	s := withCapacity(t, tn, func(int64, int) int { return 300 })
	publishTo(t, tn, s, "first", 100)
	require.Zero(t, tn.Count(t, admissionQuery))
	// what is committed while a sample is taken may be counted twice until the next one
	_, err := s.Traffic.SampleTraffic(t.Context())
	require.NoError(t, err)
	publishTo(t, tn, s, "second", 500)
	require.Equal(t, 300, tn.Count(t, admissionQuery), "of one request, too")
	publishTo(t, tn, s, "third", 10)
	require.Equal(t, 310, tn.Count(t, admissionQuery))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))

	// Many deliveries are on hold: the next one queues behind them, even if there are free workers.
	tn.Exec(t, "DELETE FROM postrider_internal.river_job")
	tn.Exec(t, "DELETE FROM postrider_internal.deliveries WHERE hold IS NULL")
	_, err = s.Traffic.SampleTraffic(t.Context())
	require.NoError(t, err)
	publishTo(t, tn, s, "fourth", 1)
	require.Equal(t, 311, tn.Count(t, admissionQuery))

	n, err := s.Releaser.Refill(t.Context(), sub.ID, false, s.Traffic.Capacity(sub.ID))
	require.NoError(t, err)
	require.Equal(t, 300, n)
	require.Zero(t, s.Traffic.Capacity(sub.ID), "a release uses the capacity")
	_, err = s.Traffic.SampleTraffic(t.Context())
	require.NoError(t, err)
	require.Zero(t, s.Traffic.Capacity(sub.ID), "and is counted once")
	tn.Exec(t, "DELETE FROM postrider_internal.river_job")
	tn.Exec(t, "DELETE FROM postrider_internal.deliveries WHERE hold IS NULL")
	require.NoError(t, testnode.ErrorOf(s.Traffic.SampleTraffic(t.Context())))
	publishTo(t, tn, s, "fifth", 1)
	require.Equal(t, 11, tn.Count(t, admissionQuery), "few waiting deliveries do not hold others")
}

// One event subscription's queue is full: another's events are not held for it.
func TestAdmissionIsPerEventSubscription(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	full := tn.Subscribe(t, "orders", "full", nil)
	tn.Subscribe(t, "orders", "free", nil)
	s := withCapacity(t, tn, func(id int64, _ int) int {
		if id == full.ID {
			return 5
		}
		return 1000
	})
	publishTo(t, tn, s, "e", 50)
	require.Equal(t, 45, tn.Count(t, admissionQuery))
	require.Equal(t, 45, tn.Count(t, admissionQuery+" AND subscription = 'full'"))
}

// Retries of one event subscription that are due at once do not all get into the queue: the others wait as held rows.
func TestPromoteHoldsJobsAboveTheCapacity(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	flooding := tn.Subscribe(t, "orders", "flooding", nil)
	other := tn.Subscribe(t, "orders", "other", nil)
	tn.Publish(t, "orders", "e", 1000)
	tn.Exec(t, "UPDATE postrider_internal.river_job SET state = 'scheduled', scheduled_at = now() - interval '1 second', "+
		"args = args || '{\"r\": 2}'")
	due := tn.Promote(t, queue.Capacity{SubscriptionID: flooding.ID, Jobs: 10})
	require.Equal(t, 2000, due)
	const available = "SELECT count(*) FROM postrider_internal.river_job WHERE state = 'available' " +
		"AND (args ->> 's')::bigint = $1"
	require.Equal(t, 10, tn.Count(t, available, flooding.ID))
	require.Equal(t, queue.DefaultCapacity, tn.Jobs(t, "state = 'available'")-10)
	require.Positive(t, tn.Count(t, admissionQuery))
	// not all at a stretch
	for tn.Jobs(t, "state = 'scheduled'") > 0 {
		tn.Promote(t, queue.Capacity{SubscriptionID: flooding.ID},
			queue.Capacity{SubscriptionID: other.ID})
	}
	require.Equal(t, 990, tn.Count(t, admissionQuery+" AND subscription = 'flooding'"))
	require.Equal(t, 990, tn.Pending(t, "hold = 'admission' AND subscription_id = $1 AND held_reruns = 2", flooding.ID))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

// Parking a flood takes a while; the retries of others are looked for past it.
func TestPromoteSearchesPastAFlood(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	flooding := tn.Subscribe(t, "orders", "flooding", nil)
	other := tn.Subscribe(t, "orders", "other", nil)
	tn.Exec(t, `INSERT INTO postrider_internal.river_job (state, args, kind, queue, priority, max_attempts, scheduled_at)
		SELECT 'scheduled'::postrider_internal.river_job_state, jsonb_build_object('s', $1::bigint, 'd', i), 'deliver',
		       'deliveries', 1, 1000, now() - interval '10 seconds' FROM generate_series(1, 9000) i
		UNION ALL SELECT 'scheduled', jsonb_build_object('s', $2::bigint, 'd', i), 'deliver', 'deliveries', 1, 1000,
		    now() - interval '5 seconds' FROM generate_series(1, 7) i`, flooding.ID, other.ID)
	promoted := func(id int64) int {
		return tn.Jobs(t, "state = 'available' AND (args ->> 's')::bigint = $1", id)
	}
	capacity := queue.Capacity{SubscriptionID: flooding.ID, Jobs: 10}
	met := tn.Promote(t, capacity)
	require.Less(t, met, 9000, "one step")
	require.Equal(t, 10, promoted(flooding.ID))
	require.Zero(t, promoted(other.ID))
	tn.Promote(t, queue.Capacity{SubscriptionID: flooding.ID})
	require.Equal(t, 7, promoted(other.ID))
	require.Equal(t, 10, promoted(flooding.ID))
	for left := 9000; left > 0; {
		tn.Promote(t, queue.Capacity{SubscriptionID: flooding.ID})
		left = tn.Jobs(t, "state = 'scheduled'")
	}
}

// Behind a flood there may be another one, and behind that a few retries.
func TestPromoteSearchesPastSeveralFloods(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	first, second := tn.Subscribe(t, "orders", "first", nil), tn.Subscribe(t, "orders", "second", nil)
	other := tn.Subscribe(t, "orders", "other", nil)
	tn.Exec(t, `INSERT INTO postrider_internal.river_job (state, args, kind, queue, priority, max_attempts, scheduled_at)
		SELECT 'scheduled', jsonb_build_object('s', s.id, 'd', i), 'deliver', 'deliveries', 1, 1000, now() - s.ago
		  FROM (VALUES ($1::bigint, 9000, interval '20 seconds'), ($2, 9000, interval '10 seconds'),
		      ($3, 7, interval '5 seconds')) s(id, jobs, ago), generate_series(1, s.jobs) i`,
		first.ID, second.ID, other.ID)
	for range 2 { // the first one meets the flood, the second one looks past it
		tn.Promote(t, queue.Capacity{SubscriptionID: first.ID},
			queue.Capacity{SubscriptionID: second.ID})
	}
	require.Equal(t, 7, tn.Jobs(t, "state = 'available' AND (args ->> 's')::bigint = $1", other.ID))
}

// Due jobs of a paused event subscription become holds without occupying a worker.
func TestPromoteHoldsJobsOfPausedSubscriptions(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	tn.Publish(t, "orders", "e", 3)
	tn.Exec(t, "UPDATE postrider_internal.river_job SET state = 'scheduled', scheduled_at = now() - interval '1 second'")
	tn.Promote(t, queue.Capacity{SubscriptionID: sub.ID, Hold: catalog.HoldPaused})
	require.Equal(t, 3, tn.Count(t, heldQuery))
	require.Zero(t, tn.Jobs(t, ""))
}

// The sample sees what every node queued, and the holds.
func TestTrafficSample(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	tn.Publish(t, "orders", "e", 7)
	other := tn.Beside(t, node.Options{Node: "node-2"}).System
	tn.Exec(t, "INSERT INTO postrider_internal.probations (probation_key, endpoint_base_url, since, until, cause, "+
		"condition, step) SELECT endpoint_hash, '', now(), $1, 'Busy', '503', 1 FROM postrider_internal.event_subscriptions",
		time.Now().Add(-time.Hour))
	traffic, err := other.Traffic.SampleTraffic(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[int64]int{sub.ID: 7}, traffic.Queued)
	require.Equal(t, 7, traffic.QueuedInAll)
	require.Len(t, traffic.Probations, 1)
	rest := traffic.ProbationOf(other.Cache.Snapshot(), sub)
	require.True(t, rest.ProbeDue)
	require.Equal(t, policy.Result{Status: 503}, rest.Result)
	require.Empty(t, traffic.ProbesDue(other.Cache.Snapshot()), "nothing waits")
	tn.Publish(t, "orders", "held", 2)
	traffic, err = other.Traffic.SampleTraffic(t.Context())
	require.NoError(t, err)
	require.Equal(t, []queue.Waiting{{SubscriptionID: sub.ID, Hold: catalog.HoldProbation, Held: 2}}, traffic.Waiting)
	require.Equal(t, [][]byte{rest.Key}, traffic.ProbesDue(other.Cache.Snapshot()))
}

// While no sample can be taken, what was queued since the last one goes on counting.
func TestCapacityAfterFailedSamples(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	tn.Traffic(t)
	tn.Exec(t, "ALTER TABLE postrider_internal.probations RENAME COLUMN condition TO hidden")
	tn.Publish(t, "orders", "e", 100)
	before := tn.System.Traffic.Capacity(sub.ID)
	for range 3 {
		require.Error(t, testnode.ErrorOf(tn.System.Traffic.SampleTraffic(t.Context())))
	}
	require.Equal(t, before, tn.System.Traffic.Capacity(sub.ID))
}

// Jobs that River finalized, and probations without deliveries, are removed after an hour, and nothing else.
func TestClean(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.Subscribe(t, "orders", "endpoint", nil)
	tn.Subscribe(t, "orders", "own", func(s *catalog.SubscriptionSpec) { s.RetryPolicy.Policy = "namespace-2023" })
	tn.Exec(t, `INSERT INTO postrider_internal.probations (probation_key, endpoint_base_url, updated_at)
		SELECT (postrider_internal.probation_keys(p.settings #>> '{probation,scope}', s.endpoint_hash, s.id))[1], 'kept',
		       now() - interval '2 hours'
		  FROM postrider_internal.event_subscriptions s JOIN postrider_internal.retry_policies p ON p.name = s.retry_policy
		UNION ALL SELECT 'unused', 'over', now() - interval '2 hours'
		UNION ALL SELECT 'unused yet', 'kept', now()`)
	tn.Exec(t, `INSERT INTO postrider_internal.river_job (state, args, kind, queue, priority, max_attempts, finalized_at)
		SELECT state::postrider_internal.river_job_state, '{}', 'deliver', 'deliveries', 1, 1000, at FROM (VALUES
			('completed', now() - interval '2 hours'), ('discarded', now() - interval '2 hours'), ('completed', now()),
			    ('available', NULL)) AS j(state, at)`)

	require.NoError(t, tn.System.Maintenance.Clean(t.Context()))

	require.Equal(t, 3, tn.Probations(t, "endpoint_base_url = 'kept'"))
	require.Zero(t, tn.Probations(t, "endpoint_base_url = 'over'"))
	require.Equal(t, 2, tn.Jobs(t, ""))
}

func TestCleanRemovesUnusedRates(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	sub := tn.Subscribe(t, "orders", "own", func(s *catalog.SubscriptionSpec) {
		s.EndpointURL, s.DeliveryRate = "https://Shop.example.com/x", &endpointconf.DeliveryRate{Limit: 1}
	})
	tn.Subscribe(t, "orders", "shared", func(s *catalog.SubscriptionSpec) {
		s.EndpointURL = "https://shop.example.com:443/y"
		s.DeliveryRate = &endpointconf.DeliveryRate{Limit: 1, Scope: endpointconf.RatePerEndpoint}
	})
	tn.Exec(t, `INSERT INTO postrider_internal.delivery_rates (key, next_at, closed_until) VALUES
		('subscription:' || $1::bigint, now() - interval '2 days', NULL),
		('host:shop.example.com', now() - interval '2 days', NULL), ('subscription:0', now(), NULL),
		('endpoint:00', '-infinity', now()), ('subscription:00', now() - interval '2 days', NULL),
		('host:other.example.com', '-infinity', NULL), ('endpoint:01', '-infinity', now() - interval '2 days')`, sub.ID)
	require.NoError(t, tn.System.Maintenance.Clean(t.Context()))
	require.Equal(t, 4, tn.Count(t, "SELECT count(*) FROM postrider_internal.delivery_rates"))
	require.Zero(t, tn.Count(t, `SELECT count(*) FROM postrider_internal.delivery_rates
		WHERE key IN ('subscription:00', 'host:other.example.com', 'endpoint:01')`))
}

// Deliveries on hold and in batches have no jobs that workers must fetch.
func TestAdmissionsCountJobs(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	batches := tn.Subscribe(t, "orders", "batches", testnode.Batching(10, 64))
	paused := tn.Subscribe(t, "orders", "paused", nil)
	jobs := func() int {
		_, err := tn.System.Traffic.SampleTraffic(t.Context())
		require.NoError(t, err)
		admitted := tn.System.Traffic.Admit([]int64{sub.ID, batches.ID, paused.ID})
		for _, id := range []int64{sub.ID, sub.ID, batches.ID, paused.ID} {
			require.True(t, admitted.Take(id))
		}
		return admitted.Jobs()
	}
	require.Equal(t, 3, jobs())
	tn.Pause(t, "orders", "paused")
	require.Equal(t, 2, jobs())
}
