package node_test

import (
	"testing"
	"time"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/node"
	"postrider/jobs/queue"
	"postrider/policy"

	"github.com/stretchr/testify/require"
)

const admissionQuery = "SELECT count(*) FROM postrider.deliveries WHERE hold = 'admission'"

// withCapacity opens a store that may queue so many jobs of each event subscription.
func withCapacity(t *testing.T, url string, capacity func(subscription int64, others int) int) *node.System {
	t.Helper()
	s, _ := newStoreWith(t, url, node.Options{Node: "node-configured", QueueCapacity: capacity})
	return s
}

func (b *bundle) publishTo(t *testing.T, s *node.System, prefix string, n int) {
	t.Helper()
	_, err := s.Publisher.Publish(t.Context(), publication("orders", prefix, n))
	require.NoError(t, err)
}

// What finds too many jobs of its event subscription queued is stored without one, and is held, not lost.
func TestPublishAdmitsUpToTheCapacity(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic(t, "orders")
	sub := b.subscription(t, "orders", "all", nil)
	s := withCapacity(t, b.url, func(int64, int) int { return 300 })
	b.publishTo(t, s, "first", 100)
	require.Zero(t, b.count(t, admissionQuery))
	// what is committed while a sample is taken may be counted twice until the next one
	_, err := s.Traffic.SampleTraffic(t.Context())
	require.NoError(t, err)
	b.publishTo(t, s, "second", 500)
	require.Equal(t, 300, b.count(t, admissionQuery), "of one request, too")
	b.publishTo(t, s, "third", 10)
	require.Equal(t, 310, b.count(t, admissionQuery))
	require.Zero(t, b.count(t, brokenTokens))

	// Many deliveries are on hold: the next one queues behind them, even if there are free workers.
	b.exec(t, "DELETE FROM postrider_internal.river_job")
	b.exec(t, "DELETE FROM postrider_internal.deliveries WHERE hold IS NULL")
	_, err = s.Traffic.SampleTraffic(t.Context())
	require.NoError(t, err)
	b.publishTo(t, s, "fourth", 1)
	require.Equal(t, 311, b.count(t, admissionQuery))

	n, err := s.Releaser.Refill(t.Context(), sub.ID, false, s.Traffic.Capacity(sub.ID))
	require.NoError(t, err)
	require.Equal(t, 300, n)
	require.Zero(t, s.Traffic.Capacity(sub.ID), "a release uses the capacity")
	_, err = s.Traffic.SampleTraffic(t.Context())
	require.NoError(t, err)
	require.Zero(t, s.Traffic.Capacity(sub.ID), "and is counted once")
	b.exec(t, "DELETE FROM postrider_internal.river_job")
	b.exec(t, "DELETE FROM postrider_internal.deliveries WHERE hold IS NULL")
	_, err = s.Traffic.SampleTraffic(t.Context())
	require.NoError(t, err)
	b.publishTo(t, s, "fifth", 1)
	require.Equal(t, 11, b.count(t, admissionQuery), "a few that wait are no crowd")
}

// One event subscription's queue is full: another's events are not held for it.
func TestAdmissionIsPerEventSubscription(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic(t, "orders")
	full := b.subscription(t, "orders", "full", nil)
	b.subscription(t, "orders", "free", nil)
	s := withCapacity(t, b.url, func(id int64, _ int) int {
		if id == full.ID {
			return 5
		}
		return 1000
	})
	b.publishTo(t, s, "e", 50)
	require.Equal(t, 45, b.count(t, admissionQuery))
	require.Equal(t, 45, b.count(t, admissionQuery+" AND subscription = 'full'"))
}

// Retries of one event subscription that are due at once do not all get into the queue: the others wait as held rows.
func TestPromoteHoldsJobsAboveTheCapacity(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic(t, "orders")
	flooding := b.subscription(t, "orders", "flooding", nil)
	other := b.subscription(t, "orders", "other", nil)
	b.publish(t, "orders", "e", 1000)
	b.exec(t, "UPDATE postrider_internal.river_job SET state = 'scheduled', scheduled_at = now() - interval '1 second', "+
		"args = args || '{\"r\": 2}'")
	due, err := b.store.JobRows.Promote(t.Context(), queue.Capacity{SubscriptionID: flooding.ID, Jobs: 10})
	require.NoError(t, err)
	require.Equal(t, 2000, due)
	const available = "SELECT count(*) FROM postrider_internal.river_job WHERE state = 'available' " +
		"AND (args ->> 's')::bigint = $1"
	require.Equal(t, 10, b.count(t, available, flooding.ID))
	require.Equal(t, queue.DefaultCapacity,
		b.count(t, "SELECT count(*) FROM postrider_internal.river_job WHERE state = 'available'")-10)
	require.Positive(t, b.count(t, admissionQuery))
	// not all at a stretch
	for b.count(t, "SELECT count(*) FROM postrider_internal.river_job WHERE state = 'scheduled'") > 0 {
		_, err := b.store.JobRows.Promote(t.Context(), queue.Capacity{SubscriptionID: flooding.ID},
			queue.Capacity{SubscriptionID: other.ID})
		require.NoError(t, err)
	}
	require.Equal(t, 990, b.count(t, admissionQuery+" AND subscription = 'flooding'"))
	require.Equal(t, 990,
		b.count(t,
			"SELECT count(*) FROM postrider_internal.deliveries WHERE hold = 'admission' AND subscription_id = $1 "+
				"AND held_reruns = 2", flooding.ID))
	require.Zero(t, b.count(t, brokenTokens))
}

// Parking a flood takes a while; the retries of others are looked for past it.
func TestPromoteSearchesPastAFlood(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic(t, "orders")
	flooding := b.subscription(t, "orders", "flooding", nil)
	other := b.subscription(t, "orders", "other", nil)
	b.exec(t, `INSERT INTO postrider_internal.river_job (state, args, kind, queue, priority, max_attempts, scheduled_at)
		SELECT 'scheduled'::postrider_internal.river_job_state, jsonb_build_object('s', $1::bigint, 'd', i), 'deliver',
		       'deliveries', 1, 1000, now() - interval '10 seconds' FROM generate_series(1, 9000) i
		UNION ALL SELECT 'scheduled', jsonb_build_object('s', $2::bigint, 'd', i), 'deliver', 'deliveries', 1, 1000,
		    now() - interval '5 seconds' FROM generate_series(1, 7) i`, flooding.ID, other.ID)
	promoted := func(id int64) int {
		return b.count(t,
			"SELECT count(*) FROM postrider_internal.river_job WHERE state = 'available' AND (args ->> 's')::bigint = $1", id)
	}
	capacity := queue.Capacity{SubscriptionID: flooding.ID, Jobs: 10}
	met, err := b.store.JobRows.Promote(t.Context(), capacity)
	require.NoError(t, err)
	require.Less(t, met, 9000, "one step")
	require.Equal(t, 10, promoted(flooding.ID))
	require.Zero(t, promoted(other.ID))
	_, err = b.store.JobRows.Promote(t.Context(), queue.Capacity{SubscriptionID: flooding.ID})
	require.NoError(t, err)
	require.Equal(t, 7, promoted(other.ID))
	require.Equal(t, 10, promoted(flooding.ID))
	for left := 9000; left > 0; {
		_, err = b.store.JobRows.Promote(t.Context(), queue.Capacity{SubscriptionID: flooding.ID})
		require.NoError(t, err)
		left = b.count(t, "SELECT count(*) FROM postrider_internal.river_job WHERE state = 'scheduled'")
	}
}

// Behind a flood there may be another one, and behind that a few retries.
func TestPromoteSearchesPastSeveralFloods(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic(t, "orders")
	first, second := b.subscription(t, "orders", "first", nil), b.subscription(t, "orders", "second", nil)
	other := b.subscription(t, "orders", "other", nil)
	b.exec(t, `INSERT INTO postrider_internal.river_job (state, args, kind, queue, priority, max_attempts, scheduled_at)
		SELECT 'scheduled', jsonb_build_object('s', s.id, 'd', i), 'deliver', 'deliveries', 1, 1000, now() - s.ago
		  FROM (VALUES ($1::bigint, 9000, interval '20 seconds'), ($2, 9000, interval '10 seconds'),
		      ($3, 7, interval '5 seconds')) s(id, jobs, ago), generate_series(1, s.jobs) i`,
		first.ID, second.ID, other.ID)
	for range 2 { // the first one meets the flood, the second one looks past it
		_, err := b.store.JobRows.Promote(t.Context(), queue.Capacity{SubscriptionID: first.ID},
			queue.Capacity{SubscriptionID: second.ID})
		require.NoError(t, err)
	}
	require.Equal(t, 7,
		b.count(t,
			"SELECT count(*) FROM postrider_internal.river_job WHERE state = 'available' AND (args ->> 's')::bigint = $1",
			other.ID))
}

// What a pause holds is parked under its name when its time comes, without a turn of a worker.
func TestPromoteParksWhatIsPaused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic(t, "orders")
	sub := b.subscription(t, "orders", "all", nil)
	b.publish(t, "orders", "e", 3)
	b.exec(t, "UPDATE postrider_internal.river_job SET state = 'scheduled', scheduled_at = now() - interval '1 second'")
	_, err := b.store.JobRows.Promote(t.Context(), queue.Capacity{SubscriptionID: sub.ID, Hold: catalog.HoldPaused})
	require.NoError(t, err)
	require.Equal(t, 3, b.count(t, heldQuery))
	require.Zero(t, b.count(t, "SELECT count(*) FROM postrider_internal.river_job"))
}

// The sample sees what every node queued, and the holds.
func TestTrafficSample(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic(t, "orders")
	sub := b.subscription(t, "orders", "all", nil)
	b.publish(t, "orders", "e", 7)
	other, _ := newStore(t, b.url, "node-2")
	b.exec(t,
		"INSERT INTO postrider_internal.probations (probation_key, endpoint_base_url, since, until, cause, condition, step) "+
			"SELECT endpoint_hash, '', now(), $1, 'Busy', '503', 1 FROM postrider_internal.event_subscriptions",
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
	b.publish(t, "orders", "held", 2)
	traffic, err = other.Traffic.SampleTraffic(t.Context())
	require.NoError(t, err)
	require.Equal(t, []queue.Waiting{{SubscriptionID: sub.ID, Hold: catalog.HoldProbation, Held: 2}}, traffic.Waiting)
	require.Equal(t, [][]byte{rest.Key}, traffic.ProbesDue(other.Cache.Snapshot()))
}

// While no sample can be taken, what was queued since the last one goes on counting.
func TestCapacityIsCountedThroughFailedSamples(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic(t, "orders")
	sub := b.subscription(t, "orders", "all", nil)
	_, err := b.store.Traffic.SampleTraffic(t.Context())
	require.NoError(t, err)
	b.exec(t, "ALTER TABLE postrider_internal.probations RENAME COLUMN condition TO hidden")
	b.publish(t, "orders", "e", 100)
	before := b.store.Traffic.Capacity(sub.ID)
	for range 3 {
		_, err := b.store.Traffic.SampleTraffic(t.Context())
		require.Error(t, err)
	}
	require.Equal(t, before, b.store.Traffic.Capacity(sub.ID))
}

// Jobs that River finalized, and probations without deliveries, are removed after an hour, and nothing else.
func TestClean(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic(t, "orders")
	b.subscription(t, "orders", "endpoint", nil)
	b.subscription(t, "orders", "own", func(s *catalog.SubscriptionSpec) { s.RetryPolicy.Policy = "namespace-2023" })
	b.exec(t, `INSERT INTO postrider_internal.probations (probation_key, endpoint_base_url, updated_at)
		SELECT postrider_internal.probation_key(p.probation_scope, s.endpoint_hash, s.id), 'kept', now() - interval '2 hours'
		  FROM postrider_internal.event_subscriptions s JOIN postrider_internal.retry_policies p ON p.name = s.retry_policy
		UNION ALL SELECT 'unused', 'over', now() - interval '2 hours'
		UNION ALL SELECT 'unused yet', 'kept', now()`)
	b.exec(t, `INSERT INTO postrider_internal.river_job (state, args, kind, queue, priority, max_attempts, finalized_at)
		SELECT state::postrider_internal.river_job_state, '{}', 'deliver', 'deliveries', 1, 1000, at FROM (VALUES
			('completed', now() - interval '2 hours'), ('discarded', now() - interval '2 hours'), ('completed', now()),
			    ('available', NULL)) AS j(state, at)`)

	require.NoError(t, b.store.Maintenance.Clean(t.Context()))

	require.Equal(t, 3, b.count(t, "SELECT count(*) FROM postrider_internal.probations WHERE endpoint_base_url = 'kept'"))
	require.Zero(t, b.count(t, "SELECT count(*) FROM postrider_internal.probations WHERE endpoint_base_url = 'over'"))
	require.Equal(t, 2, b.count(t, "SELECT count(*) FROM postrider_internal.river_job"))
}

func TestCleanRemovesUnusedRates(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic(t, "orders")
	sub := b.subscription(t, "orders", "own", func(s *catalog.SubscriptionSpec) {
		s.EndpointURL, s.DeliveryRate = "https://Shop.example.com/x", &endpointconf.DeliveryRate{Limit: 1}
	})
	b.subscription(t, "orders", "shared", func(s *catalog.SubscriptionSpec) {
		s.EndpointURL = "https://shop.example.com:443/y"
		s.DeliveryRate = &endpointconf.DeliveryRate{Limit: 1, Scope: endpointconf.RatePerEndpoint}
	})
	b.exec(t, `INSERT INTO postrider_internal.delivery_rates (key, next_at, closed_until) VALUES
		('subscription:' || $1::bigint, now() - interval '2 days', NULL),
		('host:shop.example.com', now() - interval '2 days', NULL), ('subscription:0', now(), NULL),
		('endpoint:00', '-infinity', now()), ('subscription:00', now() - interval '2 days', NULL),
		('host:other.example.com', '-infinity', NULL), ('endpoint:01', '-infinity', now() - interval '2 days')`, sub.ID)
	require.NoError(t, b.store.Maintenance.Clean(t.Context()))
	require.Equal(t, 4, b.count(t, "SELECT count(*) FROM postrider_internal.delivery_rates"))
	require.Zero(t, b.count(t, `SELECT count(*) FROM postrider_internal.delivery_rates
		WHERE key IN ('subscription:00', 'host:other.example.com', 'endpoint:01')`))
}
