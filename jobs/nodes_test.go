package jobs_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/node"
	"postrider/internal/query"
	"postrider/internal/testnode"
	"postrider/jobs"
	"postrider/jobs/queue"
)

// startNode runs another engine, on its own parts and pool, until the test ends.
func startNode(t *testing.T, tn *testnode.Node, name string, change func(*jobs.Options)) *testnode.Node {
	t.Helper()
	other := tn.Beside(t, node.Options{Node: name})
	other.Start(t, change)
	return other
}

const beatQuery = "SELECT coalesce(max(beat), -1) FROM postrider_internal.nodes WHERE id = $1"

// beats waits until a node has written n more heartbeats.
func beats(t *testing.T, tn *testnode.Node, node string, n int) {
	t.Helper()
	goal := tn.Count(t, beatQuery, node) + n
	testnode.Within(t, `tn.Count(t, beatQuery, node) >= goal`, func() bool { return tn.Count(t, beatQuery, node) >= goal })
}

// A failed heartbeat does not count against other nodes: theirs may have failed, too.
func TestFailedHeartbeatsKeepNodesAlive(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	tn.Exec(t, "INSERT INTO postrider_internal.nodes (id, beat, host, version) VALUES ('other', 7, 'h', 'v')")
	var log logged
	tn.Start(t, func(o *jobs.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	tn.Become(t, 1, "SELECT least(beat, 1) FROM postrider_internal.nodes WHERE id = $1", tn.System.Node)
	tn.Exec(t, "ALTER TABLE postrider_internal.nodes RENAME TO hidden")
	testnode.Within(t, "six heartbeats fail",
		func() bool { return strings.Count(log.String(), "the heartbeat failed") >= 6 })
	require.Equal(t,
		`the heartbeat cannot be written: relation "postrider_internal.nodes" does not exist (SQLSTATE 42P01)`,
		tn.System.Commits.Failing())
	tn.Exec(t, "ALTER TABLE postrider_internal.hidden RENAME TO nodes")

	beats(t, tn, tn.System.Node, 1)
	keepBeating(t, tn, "other")
	beats(t, tn, tn.System.Node, 2)

	require.NotContains(t, log.String(), "a node stopped its heartbeat")
	require.Empty(t, tn.System.Commits.Failing())
}

// During a rolling upgrade an older node finds jobs of a newer kind, and sees a newer node die. It runs the kinds that
// it knows; the others wait unchanged for a node of their version.
func TestJobsOfAnUnknownKindWait(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "of-the-dead", e.URL, nil)
	publishOne(t, tn, "e1")
	tn.Exec(t, "INSERT INTO postrider_internal.nodes (id, beat, host, version) VALUES ('dead', 7, 'h', 'newer')")
	runOn(t, tn, "dead", "of-the-dead")
	// Running for more than a day: the rescuer of a River leader would discard it.
	tn.Exec(t, `INSERT INTO postrider_internal.river_job (state, args, kind, queue, priority, max_attempts, scheduled_at,
		    attempted_at, attempted_by)
		SELECT j.state::postrider_internal.river_job_state, '{"d":"x","s":"y"}', 'future', 'deliveries', 1, 1000,
		       now() - interval '1 second', j.at, j.by
		  FROM (VALUES ('available', NULL, NULL), ('scheduled', NULL, NULL), ('running', now() - interval '25 hours',
		      ARRAY['dead'])) AS j(state, at, by)`)
	const rows = `SELECT string_agg(id || ' ' || state || ' ' || attempt || ' ' || (finalized_at IS NULL), ', '
		    ORDER BY id) FROM postrider_internal.river_job WHERE kind = 'future'`
	t.Cleanup(func() {
		tn.Count(t, "WITH gone AS (DELETE FROM postrider_internal.river_job WHERE kind = 'future' RETURNING id) "+
			"SELECT count(*) FROM gone")
	})
	tn.Start(t)
	publishOne(t, tn, "e2")

	require.Equal(t, "e2", tn.Attempt(t).EventID)
	require.Equal(t, "e1", tn.Attempt(t).EventID, "the known job of the dead node is made again")

	require.Zero(t, tn.Nodes(t, "id = 'dead'"))
	require.Regexp(t, `^\d+ available 0 true, \d+ available 0 true, \d+ running 0 true$`, tn.Text(t, rows))
	require.Equal(t, 3, tn.Jobs(t, ""), "the rows that were there, and no others")
}

// What a node remembers of an endpoint is removed with the event subscription.
func TestNodesForgetDeletedEventSubscriptions(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	kept, gone := subscribe(t, tn, "kept", "https://example.com/kept", nil), subscribe(t, tn, "gone",
		"https://example.com/gone", nil)
	e := tn.Engine(t)
	e.NoteFailure(kept.ID)
	e.NoteFailure(gone.ID)
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), topicName, "gone"))
	require.NoError(t, tn.System.Cache.Reload(t.Context()))
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() { testnode.RequireStops(t, e) })
	testnode.Within(t, `!e.KnowsEndpoint(gone.ID)`, func() bool { return !e.KnowsEndpoint(gone.ID) })
	require.True(t, e.KnowsEndpoint(kept.ID))
}

// The Jobs page can filter by every kind.
func TestJobKindsAreThoseOfTheQueue(t *testing.T) {
	t.Parallel()
	require.ElementsMatch(t, query.JobKinds(), []string{
		queue.DeliverKind, queue.BatchKind, queue.RouteKind, queue.HandshakeKind, queue.ExportKind, queue.OperationKind,
	})
}

const overdue = "UPDATE postrider_internal.river_job SET scheduled_at = now() - interval '1 minute'"

// A node that fetches nothing, here because River's table pauses the queue, reports that.
func TestStalledNodeReportsIt(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	subscribe(t, tn, "all", newEndpoint(t, respondWith(http.StatusOK)).URL, nil)
	tn.Exec(t, "INSERT INTO postrider_internal.river_queue (name, created_at, updated_at, paused_at) "+
		"VALUES ('deliveries', now(), now(), now())")
	publishOne(t, tn, "a")
	tn.Exec(t, overdue)
	e := tn.Start(t, func(o *jobs.Options) { o.SetProgressInterval(20 * time.Millisecond) })
	testnode.Within(t, `e.Stats().Stalled >= 100*time.Millisecond`,
		func() bool { return e.Stats().Stalled >= 100*time.Millisecond })
}

// The node is not stalled if nothing is due, or due deliveries are held or locked by a user.
func TestIdleNodeIsNotStalled(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	sink := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "locked", sink.URL, nil)
	publishOne(t, tn, "locked")
	tn.Exec(t, overdue)
	subscribe(t, tn, "paused", sink.URL, nil)
	pause(t, tn, "paused")
	unlock := tn.OpenTransaction(t, "SELECT FROM postrider_internal.river_job FOR UPDATE")
	e := tn.Start(t, func(o *jobs.Options) { o.SetProgressInterval(time.Millisecond) })
	publishOne(t, tn, "delivered and held")
	require.Equal(t, "delivered and held", tn.Attempt(t).EventID)
	beats := tn.Count(t, "SELECT beat FROM postrider_internal.nodes")
	tn.Become(t, 1, "SELECT count(*) FROM postrider_internal.nodes WHERE beat >= $1", beats+2) // many checks later
	require.Zero(t, e.Stats().Stalled)
	require.Equal(t, 1, tn.Rows(t, "deliveries", "hold = 'paused'"))
	unlock(false)
	require.Equal(t, "locked", tn.Attempt(t).EventID)
}

// namespace-2023 never retries a request without a response. A request that our stop cut is not such a request: another
// node sends the same bytes again.
func TestStopDuringARequestIsNoOutcome(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e, h := newHanging(t, respondWith(http.StatusOK))
	subscribe(t, tn, "single", e.URL+"/single", under("namespace-2023"))
	subscribe(t, tn, "batched", e.URL+"/batched", both(under("namespace-2023"), batching(5, 64)))
	first := tn.Engine(t, func(o *jobs.Options) { o.StopTimeout = 100 * time.Millisecond })
	publishAtOnce(t, tn, "e", 3)
	require.NoError(t, first.Start(t.Context()))
	const requests = 3 + 1
	for range requests {
		await(t, h.begun)
	}
	testnode.RequireStops(t, first)

	require.Zero(t, tn.Recorded(t, ""))
	require.Equal(t, requests, tn.Jobs(t, "state IN ('available', 'retryable')"))
	require.Equal(t, 6, tn.Rows(t, "deliveries", "state = 'pending' AND attempts = 0 AND last_outcome IS NULL"))
	require.Zero(t, tn.Nodes(t, ""), "the lease is given back")
	tn.RequireInvariants(t)

	h.unblock()
	startNode(t, tn, "node-2", nil)
	tn.AttemptsMade(t, requests)
	require.Equal(t, requests, tn.Rows(t, "delivery_attempts", "node = 'node-2' AND number = 1 AND reruns >= 1 "+
		"AND outcome = 'Delivered'"))
	sent := map[string]int{}
	for _, r := range e.requests() {
		sent[r.uri+r.body]++
		require.Equal(t, "0", r.header.Get("Aeg-Delivery-Count"), "a rerun is not a further attempt")
	}
	require.Len(t, sent, requests)
	require.Len(t, e.requests(), 2*requests)
}

// After River gives a cut attempt back and before the end of the stop, another node may reclaim it.
func TestStopLeavesReclaimedJobs(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	subscribe(t, tn, "all", closedPort, nil)
	publishOne(t, tn, "e")
	job := int64(tn.Count(t, "SELECT job_id FROM postrider_internal.deliveries"))
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
	engine.OpenHandoff()
	require.NoError(t, tn.System.Nodes.Register(t.Context(), "here"))
	for _, id := range []string{"a", "b", "c"} {
		publishOne(t, tn, id)
	}
	require.Equal(t, 3, tn.Jobs(t, "state = 'running'"))
	locked := tn.Count(t, "SELECT id FROM postrider_internal.river_job ORDER BY id LIMIT 1")
	unlock := tn.OpenTransaction(t, "SELECT FROM postrider_internal.river_job WHERE id = $1 FOR UPDATE", locked)

	require.NoError(t, engine.ReturnUnbegun(t.Context()))

	require.Equal(t, 2, tn.Jobs(t, "state = 'available' AND args ->> 'r' = '0'"), "not begun: no rerun")
	require.Equal(t, 3, tn.Rows(t, "deliveries", "reruns = 0"))
	require.Equal(t, 1, tn.Jobs(t, "state = 'running' AND id = $1", locked))
	require.Zero(t, tn.Nodes(t, ""))
	unlock(false)
	other := tn.Beside(t, node.Options{Node: "node-2"}).System
	n, err := other.JobRows.ReclaimFromLost(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	tn.RequireInvariants(t)
}

// A job of the local handoff whose delivery has ended is deleted.
func TestLocalJobOfADeliveryThatHasEnded(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	subscribe(t, tn, "all", closedPort, nil)
	engine := tn.Engine(t)
	engine.OpenHandoff()
	publishOne(t, tn, "e")
	tn.Exec(t, "SELECT postrider.cancel(id) FROM postrider_internal.deliveries")
	engine.RunStale()
	require.Zero(t, tn.Jobs(t, ""))
	require.Zero(t, tn.Recorded(t, ""))
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
	h.unblock()
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
	require.Zero(t, tn.Count(t, "SELECT count(*) FROM postrider_internal.river_leader"), "River's scheduler and rescuer "+
		"run on no node")
}

// An event whose delivery crashes the process must not do so for ever. The members of a batch are sent alone: only the
// event that causes the crashes is abandoned.
func TestDeliveryEndsAfterTwentyReruns(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "rows", e.URL+"/rows", only("test"))
	subscribe(t, tn, "none", e.URL+"/none", both(only("test"), dropping))
	subscribe(t, tn, "nineteen", e.URL+"/nineteen", only("test"))
	subscribe(t, tn, "batch", e.URL+"/batch", both(only("test"), batching(5, 64)))
	subscribe(t, tn, "lone", e.URL+"/lone", both(only("other"), batching(5, 64)))
	publishAtOnce(t, tn, "e", 3)
	publishOther(t, tn, "lone")
	tn.Exec(t, `UPDATE postrider_internal.river_job j
		SET args = args || jsonb_build_object('r', CASE WHEN s.name = 'nineteen' THEN 19 ELSE 20 END)
		FROM postrider_internal.event_subscriptions s WHERE s.id = (args ->> 's')::bigint`)
	tn.Start(t)
	tn.AttemptsMade(t, 6)
	tn.BecomeRows(t, 13, "deliveries", "state <> 'pending'")
	require.Equal(t, 3, tn.Rows(t, "dead_letters", "subscription = 'rows' AND reason = 'TooManyReruns' AND attempts = 0"))
	require.Equal(t, 3, tn.Rows(t, "deliveries", "subscription = 'none' AND state = 'dropped' "+
		"AND reason = 'TooManyReruns'"))
	require.Equal(t, 3, tn.Rows(t, "delivery_attempts", "subscription = 'nineteen' AND reruns = 19 "+
		"AND outcome = 'Delivered'"))
	require.Equal(t, 1, tn.Rows(t, "batches", "subscription = 'batch' AND state = 'canceled' AND attempts = 0"))
	require.Equal(t, 3, tn.Rows(t, "batch_members", "left_reason = 'TooManyReruns'"))
	require.Equal(t, 3, tn.Rows(t, "deliveries", "subscription = 'batch' AND state = 'delivered' AND attempts = 1"))
	require.Equal(t, 1, tn.Rows(t, "dead_letters", "subscription = 'lone' AND reason = 'TooManyReruns' AND attempts = 0"))
	require.Equal(t, 1, tn.Rows(t, "batches", "subscription = 'lone' AND state = 'dead_lettered' AND attempts = 0"))
	for _, r := range e.requests() {
		require.Contains(t, []string{"/nineteen", "/batch"}, r.uri)
		require.NotEmpty(t, r.eventID(), "each by itself")
	}
}

// An attempt that always fails in this program ends as well, before River discards its job and leaves the delivery
// without one.
func TestDeliveryEndsAfterTwentyInternalFailures(t *testing.T) {
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
