package jobs_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"postrider/internal/node"
	"postrider/internal/testnode"
	"postrider/jobs"
)

// startNode runs another engine, on its own parts and pool, until the test ends.
func startNode(t *testing.T, tn *testnode.Node, name string, change func(*jobs.Options)) *testnode.Node {
	t.Helper()
	other := tn.Beside(t, node.Options{Node: name})
	other.Start(t, change)
	return other
}

// occupy takes all connections of a pool; other users of the pool wait.
func occupy(t *testing.T, pool *pgxpool.Pool) (release func()) {
	t.Helper()
	taken := make([]*pgxpool.Conn, pool.Config().MaxConns)
	for i := range taken {
		var err error
		taken[i], err = pool.Acquire(t.Context())
		require.NoError(t, err)
	}
	return func() {
		for _, conn := range taken {
			conn.Release()
		}
	}
}

const beatQuery = "SELECT coalesce(max(beat), -1) FROM postrider_internal.nodes WHERE id = $1"

// beats waits until a node has written n more heartbeats.
func beats(t *testing.T, tn *testnode.Node, node string, n int) {
	t.Helper()
	goal := tn.Count(t, beatQuery, node) + n
	testnode.Within(t, `tn.Count(t, beatQuery, node) >= goal`, func() bool { return tn.Count(t, beatQuery, node) >= goal })
}

// A node whose connections are busy for longer than the lease continues its heartbeat, and keeps its attempts.
func TestBusyPoolKeepsNodesAlive(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e, h := newHanging(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, nil)
	// It polls, because a listener would keep a connection of the pool.
	busy := startNode(t, tn, "busy", func(o *jobs.Options) { o.PollOnly = true })
	publishOne(t, tn, "e")
	await(t, h.begun)
	tn.Start(t)
	beats(t, tn, "busy", 1)
	release := occupy(t, busy.Pool)
	t.Cleanup(func() { release() })
	from := tn.Count(t, beatQuery, "busy")

	beats(t, tn, tn.System.Node, 7)

	require.GreaterOrEqual(t, tn.Count(t, beatQuery, "busy"), from+4)
	require.Equal(t, 2, busy.System.Nodes.WorkerNodes())
	require.Equal(t, 2, tn.System.Nodes.WorkerNodes())
	release()
	release = func() {}
	h.letGo()
	tn.Attempt(t)
	require.Equal(t, 1, tn.Rows(t, "delivery_attempts", "node = 'busy' AND number = 1 AND reruns = 0"))
	require.Len(t, e.requests(), 1, "the attempt was not repeated")
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
	testnode.Within(t, "six heartbeats fail", func() bool {
		return strings.Count(log.String(),
			"the heartbeat failed") >= 6
	})
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
	var got string
	require.NoError(t, tn.Pool.QueryRow(t.Context(), rows).Scan(&got))
	require.Regexp(t, `^\d+ available 0 true, \d+ available 0 true, \d+ running 0 true$`, got)
	require.Equal(t, 3, tn.Jobs(t, ""),
		"the rows that were there, and no others")
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
	testnode.Within(t, `!e.Remembers(gone.ID)`, func() bool { return !e.Remembers(gone.ID) })
	require.True(t, e.Remembers(kept.ID))
}
