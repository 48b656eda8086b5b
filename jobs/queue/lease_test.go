package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
)

const (
	beatQuery = "SELECT beat FROM postrider_internal.nodes WHERE id = 'lone'"
	// leaseSessions are the sessions whose last query was about nodes, without this one.
	leaseSessions = " FROM pg_stat_activity WHERE datname = current_database() " +
		"AND query LIKE '%postrider_internal.nodes%' AND pid <> pg_backend_pid()"
)

// beat is bounded: a heartbeat that waited for a connection of the pool would wait for ever here.
func beat(t *testing.T, s *node.System) (map[string]int64, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	return s.Nodes.Beat(ctx, "host", 0)
}

func TestHeartbeatGoesOnWhileThePoolIsBusy(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(context.Context, string, int) (*pgxpool.Pool, error){
		"PostgreSQL itself": postgres.OpenPool, "the way through PgBouncer": postgres.OpenPoolThroughPgBouncer,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn, s, pool, stop := testnode.Leasing(t, open)
			busy, err := pool.Acquire(t.Context())
			require.NoError(t, err)
			defer busy.Release() // the pool's end waits for it
			require.NoError(t, s.Nodes.Register(t.Context(), "host"))
			for n := range 5 {
				require.NoError(t, testnode.ErrorOf(beat(t, s)))
				require.Equal(t, n+1, tn.Count(t, beatQuery))
			}
			require.Equal(t, 1, tn.Count(t, "SELECT count(*)"+leaseSessions), "one connection for all of them")
			require.NoError(t, s.Nodes.Unregister(t.Context(), "lone", nil))

			stop()
			tn.Become(t, 0, "SELECT count(*)"+leaseSessions)
		})
	}
}

func TestHeartbeatComesOverANewConnectionAfterAFailure(t *testing.T) {
	t.Parallel()
	tn, s, _, _ := testnode.Leasing(t, postgres.OpenPool)
	_, err := beat(t, s)
	require.NoError(t, err)
	require.Equal(t, 1, tn.Count(t, "SELECT count(pg_terminate_backend(pid, 10000))"+leaseSessions))

	require.Error(t, testnode.ErrorOf(beat(t, s)))
	require.NoError(t, testnode.ErrorOf(beat(t, s)))

	require.Equal(t, 2, tn.Count(t, beatQuery))
	// A connection that came too late is closed, and PostgreSQL takes a moment to notice.
	tn.Become(t, 1, "SELECT count(*)"+leaseSessions)
}

func TestHeartbeatKeepsToItsDeadline(t *testing.T) {
	t.Parallel()
	tn, s, _, _ := testnode.Leasing(t, postgres.OpenPool)
	require.NoError(t, testnode.ErrorOf(beat(t, s)))
	end := tn.OpenTransaction(t, "LOCK TABLE postrider_internal.nodes")

	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, testnode.ErrorOf(s.Nodes.Beat(short, "host", 0)), context.DeadlineExceeded)

	end(false)
	_, err := beat(t, s)
	require.NoError(t, err)
}

func TestWorkerNodes(t *testing.T) {
	t.Parallel()
	tn, s, _, _ := testnode.Leasing(t, postgres.OpenPool)
	require.Equal(t, 1, s.Nodes.WorkerNodes(), "before the first heartbeat, and on a node that has none")
	require.NoError(t, tn.System.Nodes.Register(t.Context(), "host"))
	_, err := beat(t, s)
	require.NoError(t, err)
	require.Equal(t, 2, s.Nodes.WorkerNodes())
	require.NoError(t, tn.System.Nodes.Unregister(t.Context(), "node-1", nil))
	require.Equal(t, 2, s.Nodes.WorkerNodes(), "as of the last heartbeat")
	require.NoError(t, testnode.ErrorOf(beat(t, s)))
	require.Equal(t, 1, s.Nodes.WorkerNodes())
	require.Equal(t, 1, tn.System.Nodes.WorkerNodes())
}
