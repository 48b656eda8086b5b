package jobs_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/node"
	"postrider/internal/testnode"
	"postrider/jobs"
	"postrider/policy"
)

// namespace-2023 never retries a request without a response. A request that our stop cut is not such a request.
func TestStopDuringARequestIsNoOutcome(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e, h := newHanging(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, under("namespace-2023"))
	first := tn.Engine(t, func(o *jobs.Options) { o.StopTimeout = 100 * time.Millisecond })
	require.NoError(t, first.Start(t.Context()))
	publishOne(t, tn, "e")
	await(t, h.begun)
	testnode.RequireStops(t, first)

	require.Zero(t, tn.Rows(t, "delivery_attempts", ""))
	require.Zero(t, tn.Rows(t, "dead_letters", ""))
	require.Equal(t, 1, tn.Jobs(t, "state IN ('available', 'retryable')"))
	require.Equal(t, 1, tn.Rows(t, "deliveries", "state = 'pending' AND attempts = 0 AND last_outcome IS NULL"))
	require.Zero(t, tn.Nodes(t, ""), "the lease is given back")
	tn.RequireInvariants(t)

	h.letGo()
	other := tn.Beside(t, node.Options{Node: "node-2"})
	second := other.Engine(t)
	require.NoError(t, second.Start(t.Context()))
	t.Cleanup(func() { testnode.RequireStops(t, second) })
	require.Equal(t, policy.Delivered, tn.Attempt(t).Verdict.Action)
	require.Equal(t, 1, tn.Rows(t, "delivery_attempts", "node = 'node-2' AND number = 1 AND reruns >= 1 "+
		"AND outcome = 'Delivered'"))
	seen := e.requests()
	require.Len(t, seen, 2)
	require.Equal(t, "0", seen[1].header.Get("Aeg-Delivery-Count"), "a rerun is not a further attempt")
}

// After River gives a cut attempt back and before the end of the stop, another node may reclaim it.
func TestStopLeavesReclaimedJobs(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	subscribe(t, tn, "all", closedPort, nil)
	publishOne(t, tn, "e")
	var job int64
	require.NoError(t, tn.Pool.QueryRow(t.Context(), "SELECT job_id FROM postrider_internal.deliveries").Scan(&job))
	runOn(t, tn, "node-2", "all")
	n, err := tn.System.JobRows.Reclaim(t.Context(), []int64{job})
	require.NoError(t, err)
	require.Zero(t, n)
	runOn(t, tn, tn.System.Node, "all")
	n, err = tn.System.JobRows.Reclaim(t.Context(), []int64{job})
	require.NoError(t, err)
	require.Equal(t, 1, n, "what this node still has is given back")
}

// A row that another session has locked affects a stop only for that row: all others are given back, and the lease is
// removed, after which any node can reclaim the row.
func TestStopBehindALockedRow(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	subscribe(t, tn, "all", closedPort, nil)
	engine := tn.Engine(t) // never started: no worker begins its local jobs
	engine.TakeOver()
	require.NoError(t, tn.System.Nodes.Register(t.Context(), "here"))
	for _, id := range []string{"a", "b", "c"} {
		publishOne(t, tn, id)
	}
	require.Equal(t, 3, tn.Jobs(t, "state = 'running'"))
	tx, err := tn.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	var locked int64
	require.NoError(t,
		tx.QueryRow(t.Context(), "SELECT id FROM postrider_internal.river_job ORDER BY id LIMIT 1 FOR UPDATE").Scan(&locked))

	require.NoError(t, engine.GiveBackUnbegun(t.Context()))

	require.Equal(t, 2, tn.Jobs(t, "state = 'available' AND args ->> 'r' = '0'"))
	require.Equal(t, 1, tn.Jobs(t, "state = 'running' AND id = $1", locked))
	require.Zero(t, tn.Nodes(t, ""))
	require.NoError(t, tx.Rollback(t.Context()))
	other := tn.Beside(t, node.Options{Node: "node-2"}).System
	n, err := other.JobRows.ReclaimFromLost(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	tn.RequireInvariants(t)
}

// A left-over job row of a dead node inserts no second job for a delivery that has one.
func TestReclaimingALeftOverJobInsertsNone(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	subscribe(t, tn, "all", closedPort, nil)
	publishOne(t, tn, "e")
	tn.Exec(t, `INSERT INTO postrider_internal.river_job (state, args, kind, queue, priority, max_attempts, attempt,
		    attempted_at, attempted_by)
		SELECT 'running', args, kind, queue, priority, max_attempts, 1, now(), '{dead}' FROM postrider_internal.river_job`)
	n, err := tn.System.JobRows.ReclaimFromLost(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
	require.Equal(t, 1, tn.Jobs(t, ""))
}

// Attempts that finish during a stop are recorded as usual.
func TestStopWaitsForResponses(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e, h := newHanging(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, nil)
	engine := tn.Engine(t, func(o *jobs.Options) { o.StopTimeout = testnode.Timeout })
	require.NoError(t, engine.Start(t.Context()))
	publishOne(t, tn, "e")
	await(t, h.begun)
	stopped := make(chan error, 1)
	go func() { stopped <- engine.Stop(context.Background()) }()
	require.Empty(t, stopped)
	h.letGo()
	require.NoError(t, <-stopped)
	require.Equal(t, 1, tn.Rows(t, "deliveries", "state = 'delivered' AND attempts = 1"))
}

// run marks a job as fetched by a node, as River's fetch does.
func runOn(t *testing.T, tn *testnode.Node, node, subscription string) {
	t.Helper()
	tn.Exec(t, `UPDATE postrider_internal.river_job SET state = 'running', attempt = 1, attempted_at = now(),
		    attempted_by = ARRAY[$1::text]
		WHERE (args ->> 's')::bigint = (SELECT id FROM postrider_internal.event_subscriptions WHERE name = $2)`, node,
		subscription)
}

// A node that died during a request stops its heartbeat. Another node repeats its attempt after four own heartbeats; a
// node with a heartbeat keeps its attempts.
func TestAttemptOfADeadNodeIsRepeated(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	ownBeats := make(chan int, 10)
	e := newEndpoint(t, func(w http.ResponseWriter, _ request) {
		ownBeats <- tn.Count(t, "SELECT beat FROM postrider_internal.nodes WHERE id = 'node-1'")
		w.WriteHeader(http.StatusOK)
	})
	subscribe(t, tn, "of-the-dead", e.URL, nil)
	subscribe(t, tn, "of-the-living", e.URL, nil)
	publishOne(t, tn, "e")
	tn.Exec(t, "INSERT INTO postrider_internal.nodes (id, beat, host, version) VALUES ('dead', 7, 'h', 'v'), ('living', "+
		"7, 'h', 'v')")
	runOn(t, tn, "dead", "of-the-dead")
	runOn(t, tn, "living", "of-the-living")
	tn.Start(t)
	keepBeating(t, tn, "living")

	report := tn.Attempt(t)
	require.Equal(t, "of-the-dead", report.Subscription)
	require.GreaterOrEqual(t, <-ownBeats, 5, "the one that showed the dead node's heartbeat, and four more")
	require.Equal(t, 1, tn.Rows(t, "delivery_attempts", "number = 1 AND reruns = 1 AND node = 'node-1'"))
	require.Equal(t, 1, tn.Rows(t, "deliveries", "state = 'delivered' AND reruns = 1"))
	require.Zero(t, tn.Nodes(t, "id = 'dead'"))
	require.Equal(t, 1, tn.Jobs(t, "state = 'running' AND attempted_by = '{living}'"))
	require.Len(t, e.requests(), 1)
}

// keepBeating moves a node's heartbeat until the test ends.
func keepBeating(t *testing.T, tn *testnode.Node, node string) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan struct{})
	ticker := time.NewTicker(200 * time.Millisecond)
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				_, _ = tn.Pool.Exec(context.Background(), "UPDATE postrider_internal.nodes SET beat = beat + 1 WHERE id = $1", node)
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done; ticker.Stop() })
}

func TestTwoEnginesShareTheWork(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, nil)
	for _, name := range []string{"node-2", "node-3"} {
		tn.Beside(t, node.Options{Node: name, MaxWorkers: 5}).Start(t)
	}
	want := publishMany(t, tn, 300)
	tn.AttemptsMade(t, len(want))
	require.Equal(t, want, e.eventIDs(), "each once")
	require.Equal(t, len(want), tn.Rows(t, "deliveries", "state = 'delivered' AND reruns = 0"))
	require.Equal(t, 2, tn.Count(t, "SELECT count(DISTINCT node) FROM postrider.delivery_attempts"))
}

// Every node promotes due jobs. River's scheduler, which bypasses the gate, runs on no node, because no leader is
// elected.
func TestDueJobsArePromotedWithoutALeader(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusInternalServerError))
	subscribe(t, tn, "scheduled", e.URL, nil)
	subscribe(t, tn, "retryable", e.URL, nil)
	tn.Start(t)
	publishOne(t, tn, "e")
	tn.AttemptsMade(t, 2)
	require.Equal(t, 2, tn.Jobs(t, "state = 'scheduled'"))
	require.Equal(t, 2, tn.Count(t, strings.Replace(travelStatement, "state = 'available'",
		"state = (SELECT name FROM postrider_internal.event_subscriptions s "+
			"WHERE s.id = (args ->> 's')::bigint)::postrider_internal.river_job_state", 1)))
	tn.AttemptsMade(t, 2)
	require.Zero(t, tn.Count(t, "SELECT count(*) FROM postrider_internal.river_leader"))
}

// An event whose delivery crashes the process must not do so for ever.
func TestTwentyRerunsAreEnough(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "rows", e.URL+"/rows", nil)
	subscribe(t, tn, "none", e.URL+"/none", func(s *catalog.SubscriptionSpec) {
		s.DeadLetterDestination = &catalog.DeadLetterDestination{EndpointType: catalog.DeadLetterNone}
	})
	subscribe(t, tn, "nineteen", e.URL+"/nineteen", nil)
	publishOne(t, tn, "e")
	tn.Exec(t, `UPDATE postrider_internal.river_job j
		SET args = args || jsonb_build_object('r', CASE WHEN s.name = 'nineteen' THEN 19 ELSE 20 END)
		FROM postrider_internal.event_subscriptions s WHERE s.id = (args ->> 's')::bigint`)
	tn.Start(t)
	tn.Attempt(t)
	tn.BecomeRows(t, 3, "deliveries", "state <> 'pending'")
	require.Equal(t, 1, tn.Rows(t, "dead_letters", "subscription = 'rows' AND reason = 'TooManyReruns' AND attempts = 0"))
	require.Equal(t, 1, tn.Rows(t, "deliveries", "subscription = 'none' AND state = 'dropped' "+
		"AND reason = 'TooManyReruns'"))
	require.Equal(t, 1, tn.Rows(t, "delivery_attempts", "subscription = 'nineteen' AND reruns = 19 "+
		"AND outcome = 'Delivered'"))
	require.Equal(t, "/nineteen", requireOneRequest(t, e).uri)
}

// An attempt that always fails in this program ends as well, before River discards its job and leaves the delivery
// without one.
func TestTwentyInternalFailuresAreEnough(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, nil)
	publishOne(t, tn, "e")
	tn.Exec(t, "UPDATE postrider_internal.events SET body = 'not an object'")
	tn.Start(t)
	tn.Become(t, 1,
		"SELECT count(*) FROM postrider_internal.river_job WHERE attempt = 0 AND state = 'available' AND args ->> 'r' = '1'")
	tn.Exec(t, `UPDATE postrider_internal.river_job SET args = args || '{"r": 20}', scheduled_at = now()`)
	tn.BecomeRows(t, 1, "dead_letters", "reason = 'TooManyReruns' AND attempts = 0 AND body_text = 'not an object'")
	require.Empty(t, e.requests())
}

// A local job that waits for a worker when its node stops has not begun: another node's attempt is the first.
func TestStopGivesBackUnbegunJobsWithoutARerun(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	subscribe(t, tn, "all", closedPort, nil)
	engine := tn.Engine(t) // never started: no worker begins its local jobs
	engine.TakeOver()
	publishOne(t, tn, "e")
	require.Equal(t, 1, tn.Jobs(t, "state = 'running'"))

	require.NoError(t, engine.GiveBackUnbegun(t.Context()))

	require.Equal(t, 1, tn.Jobs(t, "state = 'available' AND args ->> 'r' = '0'"))
	require.Equal(t, 1, tn.Rows(t, "deliveries", "reruns = 0"))
	tn.RequireInvariants(t)
}
