package publish_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/filter"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/jobs"
	"postrider/jobs/queue"
)

// misrouted counts pairs of event and event subscription with none or more than one delivery, where all want all.
const misrouted = `
SELECT count(*) FROM (
    SELECT FROM postrider.events e CROSS JOIN postrider.event_subscriptions s
      LEFT JOIN postrider.deliveries d ON d.system_id = e.system_id AND d.subscription = s.subscription
     GROUP BY e.system_id, s.subscription HAVING count(d.delivery_id) <> 1) wrong`

// routed is a node whose publishes are routed from 11 deliveries on, with a topic and n event subscriptions.
func routed(t *testing.T, n int) *testnode.Node {
	t.Helper()
	tn := testnode.Unchecked(t)
	tn.System = routingStore(t, tn, "node-r")
	tn.Topic(t, "orders")
	for i := range n {
		tn.Subscribe(t, "orders", fmt.Sprintf("sub-%d", i), nil)
	}
	return tn
}

func routingStore(t *testing.T, tn *testnode.Node, name string) *node.System {
	t.Helper()
	return tn.Beside(t, node.Options{Node: name, RouteThreshold: 10}).System
}

func requireRoutedOnce(t *testing.T, tn *testnode.Node) {
	t.Helper()
	require.Zero(t, tn.Count(t, misrouted), "every event subscription has one delivery of every event")
	require.Zero(t, tn.Routes(t, ""))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	require.Zero(t, tn.Count(t, testnode.MiscountedRollups))
}

func TestPublishOfVeryManyDeliveriesStoresARoute(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ events, subscriptions, deliveries, routes int }{
		"at the threshold":          {events: 5, subscriptions: 2, deliveries: 10, routes: 0},
		"past the threshold":        {events: 11, subscriptions: 1, deliveries: 0, routes: 1},
		"one event for many":        {events: 1, subscriptions: 11, deliveries: 0, routes: 1},
		"many without subscription": {events: 200, subscriptions: 0, deliveries: 0, routes: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn := routed(t, row.subscriptions)
			receipt := tn.Publish(t, "orders", "e", row.events)

			require.Equal(t, row.events*row.subscriptions, receipt.Deliveries())
			require.Equal(t, row.events, tn.Rows(t, "events", "matched = $1", row.subscriptions))
			require.Equal(t, row.deliveries, tn.Rows(t, "deliveries", ""))
			require.Equal(t, row.routes, tn.Routes(t, ""))
			require.Len(t, tn.RouteJobs(t), row.routes)
			require.Zero(t, tn.Count(t, testnode.BrokenRoutes))
			require.Zero(t, tn.Count(t, testnode.MiscountedRollups),
				"published counts at publishing, matched when the delivery is created")

			tn.RouteAll(t, tn.System)
			requireRoutedOnce(t, tn)
			require.Equal(t, row.events*row.subscriptions, tn.Count(t, "SELECT count(*) FROM postrider.deliveries d "+
				"JOIN postrider.events e USING (system_id) WHERE d.time_to_live_since = e.published_at"),
				"the time to live began when the event was accepted")
		})
	}
}

// With the default threshold the publisher does not wait until 10,100 deliveries are created.
func TestDefaultRouteThreshold(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	for i := range 100 {
		tn.Subscribe(t, "orders", fmt.Sprintf("sub-%d", i), nil)
	}
	require.Equal(t, 10_000, tn.Publish(t, "orders", "few", 100).Deliveries())
	require.Equal(t, 10_000, tn.Pending(t, ""))
	require.Equal(t, 10_100, tn.Publish(t, "orders", "many", 101).Deliveries())
	require.Equal(t, 10_000, tn.Pending(t, ""))
	require.Equal(t, 1, tn.Routes(t, ""))
}

func TestRouteRunsInSteps(t *testing.T) {
	t.Parallel()
	tn := routed(t, 4)
	for limit, rounds := range map[int]int{1: 28, 3: 10, 4: 7, 5: 6, 28: 1} {
		tn.System.Publisher.LimitSteps(limit, 0)
		tn.Publish(t, "orders", fmt.Sprintf("by-%d", limit), 7)
		require.Equal(t, rounds, tn.RouteAll(t, tn.System), "steps of %d", limit)
		requireRoutedOnce(t, tn)
	}
}

// Two nodes may have the same job: one that was considered dead, and the one that reclaimed the job.
func TestRouteStepRunsOnce(t *testing.T) {
	t.Parallel()
	tn := routed(t, 3)
	other := routingStore(t, tn, "node-2")
	tn.System.Publisher.LimitSteps(7, 0)
	other.Publisher.LimitSteps(5, 0)
	for i := range 5 {
		tn.Publish(t, "orders", fmt.Sprint(i), 10)
	}
	tn.RouteAll(t, tn.System, other, tn.System)
	requireRoutedOnce(t, tn)
}

func TestRouteOfADeadNodeContinuesAtItsPosition(t *testing.T) {
	t.Parallel()
	tn := routed(t, 3)
	tn.System.Publisher.LimitSteps(4, 0)
	tn.Publish(t, "orders", "e", 10)
	for round := 0; ; round++ {
		old := tn.RouteJobs(t)
		if len(old) == 0 {
			break
		}
		tn.Exec(t, "UPDATE postrider_internal.river_job SET state = 'running', attempt = 1, attempted_at = now(), "+
			"attempted_by = '{dead}' WHERE kind = 'route'")
		require.Equal(t, 1, tn.Reclaim(t))
		require.NotEqual(t, old, tn.RouteJobs(t), "a job row never serves two runs")
		made := tn.Pending(t, "")
		require.NoError(t, tn.System.Publisher.Route(t.Context(), old[0]), "the dead come back")
		require.Equal(t, made, tn.Pending(t, ""), "and make nothing")
		tn.StepRoutes(t, tn.System)
		require.Less(t, round, 30)
	}
	requireRoutedOnce(t, tn)
}

// While another transaction replaces the job, the step waits for its end. Then it does nothing.
func TestRouteStepWaitsForTheReplacementOfItsJob(t *testing.T) {
	t.Parallel()
	tn := routed(t, 3)
	tn.Publish(t, "orders", "e", 10)
	job := tn.RouteJobs(t)[0]
	end := tn.OpenTransaction(t, "DELETE FROM postrider_internal.river_job WHERE id = $1", job)
	stepped := make(chan error, 1)
	go func() { stepped <- tn.System.Publisher.Route(context.Background(), job) }()
	tn.AwaitLock(t, "")
	end(true)
	require.NoError(t, <-stepped)
	require.Zero(t, tn.Pending(t, ""))
	require.Equal(t, 1, tn.Routes(t, "next_event = 0"))
}

// Filters apply when an event is routed: an event subscription that was deleted or changed meanwhile gets no delivery,
// and who came later is not either.
func TestRouteIsFilteredWhenItIsRouted(t *testing.T) {
	t.Parallel()
	tn := routed(t, 5)
	other := routingStore(t, tn, "node-2")
	tn.Publish(t, "orders", "e", 6)
	tn.System.Publisher.LimitSteps(9, 0) // the fourth event subscription of the second event
	tn.StepRoutes(t, tn.System)
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", "sub-1"))
	change := testnode.SubscriptionSpec()
	change.Filter = filter.Filter{IncludedEventTypes: []string{"other"}}
	_, _, err := tn.System.Subscriptions.Put(t.Context(), "orders", "sub-2", change)
	require.NoError(t, err)
	tn.Subscribe(t, "orders", "late", nil)

	require.NoError(t, other.Publisher.Route(t.Context(), tn.RouteJobs(t)[0]), "by a node that may not know of it yet")

	for name, want := range map[string]int{"sub-0": 6, "sub-1": 0, "sub-2": 2, "sub-3": 6, "sub-4": 6, "late": 0} {
		require.Equal(t, want, tn.Count(t, `SELECT count(DISTINCT system_id) FROM postrider.deliveries
			WHERE subscription = $1 AND state = 'pending'`, name), name)
	}
	require.Zero(t, tn.Routes(t, ""))
	require.Equal(t, 6, tn.Rows(t, "events", "matched = 5"), "what was counted when it was accepted stays")
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

func TestRoutedPublishSeesTheChange(t *testing.T) {
	t.Parallel()
	tn := routed(t, 11)
	other := routingStore(t, tn, "node-2")
	for i := range 3 {
		tn.Subscribe(t, "orders", fmt.Sprintf("new-%d", i), nil)
		receipt, err := other.Publisher.Publish(t.Context(), testnode.Publication("orders", fmt.Sprintf("after-%d", i), 1))
		require.NoError(t, err)
		require.Equal(t, []int{12}, receipt.Matched)
		tn.RouteAll(t, other)
		require.Equal(t, 12, tn.Rows(t, "deliveries", "event_id = $1", fmt.Sprintf("after-%d-0", i)))
		require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", fmt.Sprintf("new-%d", i)))
	}
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

// With a catalog that changes all the time, routing reads it in its own transaction.
func TestRoutesDuringConfigurationChanges(t *testing.T) {
	t.Parallel()
	tn := routed(t, 3)
	tn.System.Publisher.LimitSteps(5, 0)
	tn.Publish(t, "orders", "e", 10)
	ctx, cancel := context.WithCancel(t.Context())
	var changes sync.WaitGroup
	for range 2 {
		changes.Go(func() {
			for ctx.Err() == nil {
				_, _ = tn.Pool.Exec(ctx, "SELECT postrider_internal.next_catalog_version()")
			}
		})
	}
	tn.RouteAll(t, tn.System)
	cancel()
	changes.Wait()
	requireRoutedOnce(t, tn)
}

func TestRoutedDeliveriesObeyHoldsAndBatching(t *testing.T) {
	t.Parallel()
	tn := routed(t, 1)
	tn.Subscribe(t, "orders", "paused", nil)
	tn.Subscribe(t, "orders", "batching", testnode.Batching(10, 64))
	tn.Subscribe(t, "orders", "paused-batching", testnode.Batching(10, 64))
	tn.Publish(t, "orders", "e", 5)
	for _, name := range []string{"paused", "paused-batching"} {
		tn.Pause(t, "orders", name)
	}
	tn.RouteAll(t, tn.System)
	const by = "SELECT count(*) FROM postrider_internal.deliveries d JOIN postrider_internal.event_subscriptions s " +
		"ON s.id = d.subscription_id WHERE s.name = $1 AND "
	require.Equal(t, 5, tn.Count(t, by+"d.job_id IS NOT NULL AND d.hold IS NULL", "sub-0"))
	require.Equal(t, 5, tn.Count(t, by+"d.job_id IS NULL AND d.hold = 'paused'", "paused"))
	require.Equal(t, 5, tn.Count(t, by+"d.job_id IS NULL AND d.hold IS NULL", "batching"))
	require.Equal(t, 5, tn.Count(t, by+"d.job_id IS NULL AND d.hold = 'paused'", "paused-batching"))
	require.Equal(t, 1, tn.Jobs(t, "kind = 'batch'"), "one batch cutter, for the one that is open")
	require.Zero(t, tn.Count(t, misrouted))
	require.Zero(t, tn.Count(t, testnode.MiscountedRollups))
}

// A node without free workers gets no more jobs from a route than from a publish.
func TestRoutedDeliveriesNeedAdmission(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	s := tn.Beside(t, node.Options{
		Node: "node-r", RouteThreshold: 10, QueueCapacity: func(int64, int) int { return 3 },
	}).System
	tn.System = s
	tn.Topic(t, "orders")
	tn.Subscribe(t, "orders", "full", nil)
	tn.Publish(t, "orders", "e", 20)
	tn.RouteAll(t, s)
	require.Equal(t, 3, tn.Pending(t, "job_id IS NOT NULL"))
	require.Equal(t, 17, tn.Pending(t, "hold = 'admission'"))
	requireRoutedOnce(t, tn)
}

func TestSweepInsertsTheJobOfARouteAgain(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		breaking string
		want     jobs.Swept
	}{
		"the job row is gone":    {"DELETE FROM postrider_internal.river_job", jobs.Swept{Repaired: 1}},
		"the route names no job": {"UPDATE postrider_internal.routes SET job_id = NULL", jobs.Swept{Repaired: 1}},
		"River discarded the job": {
			"UPDATE postrider_internal.river_job SET state = 'discarded', finalized_at = now()", jobs.Swept{Repaired: 1},
		},
		"the job is of another kind": {"UPDATE postrider_internal.river_job SET kind = 'other'", jobs.Swept{Repaired: 1}},
		"the job is being worked":    {"UPDATE postrider_internal.river_job SET state = 'running'", jobs.Swept{}},
		"the route is not a minute old": {
			"UPDATE postrider_internal.routes SET created_at = now(), job_id = NULL", jobs.Swept{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn := routed(t, 11)
			tn.Publish(t, "orders", "e", 1)
			tn.Exec(t, "UPDATE postrider_internal.routes SET created_at = created_at - interval '1 hour'")
			tn.Exec(t, row.breaking)
			require.Equal(t, row.want, tn.Sweep(t))
			require.Equal(t, jobs.Swept{}, tn.Sweep(t), "once is enough")
			if row.want.Repaired > 0 {
				require.EqualValues(t, 1, tn.System.Maintenance.Repairs())
				tn.Exec(t, "DELETE FROM postrider_internal.river_job j WHERE NOT EXISTS (SELECT FROM postrider_internal.routes r "+
					"WHERE r.job_id = j.id)")
				tn.RouteAll(t, tn.System)
				requireRoutedOnce(t, tn)
			}
		})
	}
}

// Removed events get no deliveries, and the route continues after them.
func TestRouteOfRemovedEvents(t *testing.T) {
	t.Parallel()
	tn := routed(t, 3)
	tn.Publish(t, "orders", "e", 10)
	tn.Exec(t, "DELETE FROM postrider_internal.events WHERE event_id = 'e-4'")
	tn.RouteAll(t, tn.System)
	require.Equal(t, 27, tn.Pending(t, ""))
	require.Zero(t, tn.Count(t, misrouted))
	require.Zero(t, tn.Routes(t, ""))
}

func TestRouteIsRetriedUntilItCommits(t *testing.T) {
	t.Parallel()
	tn := routed(t, 3)
	tn.Publish(t, "orders", "e", 10)
	tn.Exec(t, "ALTER TABLE postrider_internal.deliveries RENAME TO away")
	stepped := make(chan error, 1)
	job := tn.RouteJobs(t)[0]
	go func() { stepped <- tn.System.Publisher.Route(context.Background(), job) }()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, tn.System.Publisher.Route(ctx, job), context.DeadlineExceeded, "a waiting caller can stop")
	require.Empty(t, stepped)
	tn.Exec(t, "ALTER TABLE postrider_internal.away RENAME TO deliveries")
	require.NoError(t, <-stepped)
	tn.RouteAll(t, tn.System)
	requireRoutedOnce(t, tn)
}

func TestRoutedPublishOfPoisonIsRejected(t *testing.T) {
	t.Parallel()
	tn := routed(t, 11)
	require.ErrorIs(t, testnode.ErrorOf(tn.System.Publisher.Publish(t.Context(), poison())), postgres.ErrPoison)
	require.Zero(t, tn.Routes(t, ""))
}

func TestOnlyTheInvalidRouteIsRejected(t *testing.T) {
	t.Parallel()
	tn := routed(t, 3)
	tn.Topic(t, "payments")
	rejected := tn.Subscribe(t, "payments", "rejected", nil)
	tn.Publish(t, "payments", "p", 11)
	guilty := tn.RouteJobs(t)[0]
	tn.Publish(t, "orders", "e", 5)
	tn.Publish(t, "orders", "f", 5)
	tn.Exec(t, fmt.Sprintf("ALTER TABLE postrider_internal.deliveries ADD CONSTRAINT none CHECK (subscription_id <> %d)",
		rejected.ID))
	all := tn.RouteJobs(t)
	testnode.AtOnce(len(all), func(i int) {
		if err := tn.System.Publisher.Route(t.Context(), all[i]); all[i] == guilty {
			require.ErrorIs(t, err, postgres.ErrPoison)
		} else {
			require.NoError(t, err)
		}
	})
	require.Equal(t, []int64{guilty}, tn.RouteJobs(t))
	require.Equal(t, 30, tn.Pending(t, ""))
	require.Zero(t, tn.Count(t, testnode.BrokenRoutes))
}

// A job whose route a user has locked is replaced later: those of others, which end in the same call, do not wait.
func TestDeferLeavesALockedRoute(t *testing.T) {
	t.Parallel()
	tn := routed(t, 11)
	tn.Publish(t, "orders", "e", 1)
	fetched, err := tn.System.JobRows.Fetch(t.Context(), queue.RouteQueue, nil, 1)
	require.NoError(t, err)
	end := tn.OpenTransaction(t, "SELECT FROM postrider_internal.routes FOR UPDATE")
	n, err := tn.System.JobRows.Defer(t.Context(), []queue.Deferred{{Job: fetched[0].ID, Begun: true}})
	require.NoError(t, err)
	require.Zero(t, n)
	end(false)
	tn.Exec(t, "UPDATE postrider_internal.river_job SET attempted_at = now() - interval '16 seconds'")
	n, err = tn.System.JobRows.ReclaimOwn(t.Context(), []int64{})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Zero(t, tn.Count(t, testnode.BrokenRoutes))
}

// A step whose connection breaks is rolled back, and repeated over another connection.
func TestRouteStepIsRepeatedAfterALostConnection(t *testing.T) {
	t.Parallel()
	tn := routed(t, 3)
	tn.Publish(t, "orders", "e", 10)
	end := tn.OpenTransaction(t, "LOCK TABLE postrider_internal.rollup_deltas IN SHARE MODE")
	stepped := make(chan error, 1)
	job := tn.RouteJobs(t)[0]
	go func() { stepped <- tn.System.Publisher.Route(context.Background(), job) }()
	testnode.Within(t, "the step loses its connection", func() bool {
		return tn.Count(t, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database()
			AND wait_event_type = 'Lock' AND query LIKE '%after_subscription%'`) > 0
	})
	end(false)
	require.NoError(t, <-stepped)
	require.Equal(t, 30, tn.Pending(t, ""))
	requireRoutedOnce(t, tn)
}
