package jobs_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"postrider/internal/node"
	"postrider/jobs"
)

// startNode runs another engine, on its own store and pool, until the test ends.
func (b *bundle) startNode(t *testing.T, name string, change func(*jobs.Options)) (*node.System, *pgxpool.Pool) {
	t.Helper()
	s, pool := newStore(t, b.url, name)
	e := b.newEngine(t, s, change)
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() { requireStops(t, e) })
	return s, pool
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
func (b *bundle) beats(t *testing.T, node string, n int) {
	t.Helper()
	goal := b.count(t, beatQuery, node) + n
	require.Eventually(t, func() bool { return b.count(t, beatQuery, node) >= goal }, waitTimeout, tick)
}

// A node whose connections are busy for longer than the lease continues its heartbeat, and keeps its attempts.
func TestBusyPoolKeepsNodesAlive(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e, h := newHanging(t, respondWith(http.StatusOK))
	b.subscribe(t, "all", e.URL, nil)
	// It polls, because a listener would keep a connection of the pool.
	busy, pool := b.startNode(t, "busy", func(o *jobs.Options) { o.PollOnly = true })
	b.publishOne(t, "e")
	<-h.begun
	b.start(t, nil)
	b.beats(t, "busy", 1)
	release := occupy(t, pool)
	t.Cleanup(func() { release() })
	from := b.count(t, beatQuery, "busy")

	b.beats(t, b.store.Node, 7)

	require.GreaterOrEqual(t, b.count(t, beatQuery, "busy"), from+4)
	require.Equal(t, 2, busy.Nodes.WorkerNodes())
	require.Equal(t, 2, b.store.Nodes.WorkerNodes())
	release()
	release = func() {}
	h.letGo()
	b.attempt(t)
	require.Equal(t, 1,
		b.count(t, "SELECT count(*) FROM postrider.delivery_attempts WHERE node = 'busy' AND number = 1 AND reruns = 0"))
	require.Len(t, e.requests(), 1, "the attempt was not repeated")
}

// A failed heartbeat does not count against other nodes: theirs may have failed, too.
func TestFailedHeartbeatsKeepNodesAlive(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, "INSERT INTO postrider_internal.nodes (id, beat, host, version) VALUES ('other', 7, 'h', 'v')")
	var log logged
	b.start(t, func(o *jobs.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	b.become(t, 1, "SELECT least(beat, 1) FROM postrider_internal.nodes WHERE id = $1", b.store.Node)
	b.exec(t, "ALTER TABLE postrider_internal.nodes RENAME TO hidden")
	require.Eventually(t, func() bool { return strings.Count(log.String(), "the heartbeat failed") >= 6 },
		waitTimeout, tick)
	require.Equal(t,
		`the heartbeat cannot be written: relation "postrider_internal.nodes" does not exist (SQLSTATE 42P01)`,
		b.store.Commits.Failing())
	b.exec(t, "ALTER TABLE postrider_internal.hidden RENAME TO nodes")

	b.beats(t, b.store.Node, 1)
	b.keepBeating(t, "other")
	b.beats(t, b.store.Node, 2)

	require.NotContains(t, log.String(), "a node stopped its heartbeat")
	require.Empty(t, b.store.Commits.Failing())
}

// During a rolling upgrade an older node finds jobs of a newer kind, and sees a newer node die. It runs the kinds that
// it knows; the others wait unchanged for a node of their version.
func TestJobsOfAnUnknownKindWait(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	b.subscribe(t, "of-the-dead", e.URL, nil)
	b.publishOne(t, "e1")
	b.exec(t, "INSERT INTO postrider_internal.nodes (id, beat, host, version) VALUES ('dead', 7, 'h', 'newer')")
	b.run(t, "dead", "of-the-dead")
	// Running for more than a day: the rescuer of a River leader would discard it.
	b.exec(t, `INSERT INTO postrider_internal.river_job (state, args, kind, queue, priority, max_attempts, scheduled_at,
		    attempted_at, attempted_by)
		SELECT j.state::postrider_internal.river_job_state, '{"d":"x","s":"y"}', 'future', 'deliveries', 1, 1000,
		       now() - interval '1 second', j.at, j.by
		  FROM (VALUES ('available', NULL, NULL), ('scheduled', NULL, NULL), ('running', now() - interval '25 hours',
		      ARRAY['dead'])) AS j(state, at, by)`)
	const rows = `SELECT string_agg(id || ' ' || state || ' ' || attempt || ' ' || (finalized_at IS NULL), ', '
		    ORDER BY id) FROM postrider_internal.river_job WHERE kind = 'future'`
	t.Cleanup(func() {
		b.count(t, "WITH gone AS (DELETE FROM postrider_internal.river_job WHERE kind = 'future' RETURNING id) "+
			"SELECT count(*) FROM gone")
	})
	b.start(t, nil)
	b.publishOne(t, "e2")

	require.Equal(t, "e2", b.attempt(t).EventID)
	require.Equal(t, "e1", b.attempt(t).EventID, "the known job of the dead node is made again")

	require.Zero(t, b.count(t, "SELECT count(*) FROM postrider_internal.nodes WHERE id = 'dead'"))
	var got string
	require.NoError(t, b.pool.QueryRow(t.Context(), rows).Scan(&got))
	require.Regexp(t, `^\d+ available 0 true, \d+ available 0 true, \d+ running 0 true$`, got)
	require.Equal(t, 3, b.count(t, "SELECT count(*) FROM postrider_internal.river_job"),
		"the rows that were there, and no others")
}

// What a node remembers of an endpoint is removed with the event subscription.
func TestNodesForgetDeletedEventSubscriptions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	kept, gone := b.subscribe(t, "kept", "https://example.com/kept", nil), b.subscribe(t, "gone",
		"https://example.com/gone", nil)
	e := b.newEngine(t, b.store, nil)
	e.NoteFailure(kept.ID)
	e.NoteFailure(gone.ID)
	require.NoError(t, b.store.Subscriptions.Delete(t.Context(), topicName, "gone"))
	require.NoError(t, b.store.Cache.Reload(t.Context()))
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() { requireStops(t, e) })
	require.Eventually(t, func() bool { return !e.Remembers(gone.ID) }, waitTimeout, time.Millisecond)
	require.True(t, e.Remembers(kept.ID))
}
