package query_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/operator"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/internal/testdb"
	"postrider/internal/testnode"
)

// searchesBehindALock returns a database with 16 connections, its Reader, and the number of its statements in
// PostgreSQL: they wait for a table that the test has locked.
func searchesBehindALock(t *testing.T) (*postgres.DB, *query.Reader, func() int) {
	t.Helper()
	url := testdb.Clone(t)
	pool, err := postgres.OpenPool(t.Context(), url, 16)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	watch, err := postgres.OpenPool(t.Context(), url, 2)
	require.NoError(t, err)
	t.Cleanup(watch.Close)
	tx, err := watch.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	require.NoError(t, testnode.ErrorOf(tx.Exec(t.Context(), "LOCK TABLE postrider_internal.dead_letters, "+
		"postrider_internal.events, postrider_internal.rollup_sums, postrider_internal.topics")))
	db := postgres.NewDB(pool)
	return db, query.NewReader(db, postgres.NewClock()), func() int {
		var n int
		const blocked = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND wait_event_type = 'Lock'`
		require.NoError(t, watch.QueryRow(t.Context(), blocked).Scan(&n))
		return n
	}
}

func viewer(ctx context.Context, name string) context.Context {
	return access.WithActor(ctx, access.Actor{Name: "user:" + name, Role: access.RoleViewer})
}

// Searches, counts, dry runs, problems and tails of one credential use two of 16 connections, those of all credentials
// eight.
func TestSearchesLeaveConnectionsToOthers(t *testing.T) {
	t.Parallel()
	db, reader, blocked := searchesBehindALock(t)
	operators := operator.NewOperator(db, reader, postgres.NewClock(), nil, nil, nil)
	type letters = query.DeadLetterFilter
	turn := query.Turn[query.DeadLetterPlace]{Limit: 10}
	reads := []func(context.Context) error{
		func(ctx context.Context) error {
			return testnode.ErrorOf(reader.ListDeadLetters(ctx, &letters{Search: "refund"}, query.DeadLetterPlace{}, 10))
		},
		func(ctx context.Context) error {
			return testnode.ErrorOf(reader.ReadDeadLetters(ctx, &letters{}, turn, nil))
		},
		func(ctx context.Context) error { return testnode.ErrorOf(reader.CountDeadLetters(ctx, &letters{})) },
		func(ctx context.Context) error {
			return testnode.ErrorOf(reader.CountDeliveries(ctx, query.DeliveryFilter{}))
		},
		func(ctx context.Context) error {
			return testnode.ErrorOf(operators.PreviewRepair(ctx, &letters{}, &operator.Action{Patch: []byte("{}")}))
		},
		func(ctx context.Context) error {
			return testnode.ErrorOf(reader.ReadProblems(ctx, query.ProblemFilter{}, 24*time.Hour))
		},
		func(ctx context.Context) error { return testnode.ErrorOf(reader.Find(ctx, "orders")) },
		func(ctx context.Context) error { return testnode.ErrorOf(reader.LastEvents(ctx, 1, 10)) },
		func(ctx context.Context) error { return testnode.ErrorOf(reader.NewTail(query.TailFilter{}).Next(ctx)) },
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	start := func(name string) {
		for _, read := range append(reads, reads...) {
			group.Go(func() {
				for ctx.Err() == nil { // a statement waits two seconds for the lock
					_ = read(viewer(ctx, name))
				}
			})
		}
	}
	start("anna")
	eventually := func(want int) {
		t.Helper()
		testnode.Within(t, "the searches wait", func() bool {
			n := blocked()
			require.LessOrEqual(t, n, want)
			return n == want
		})
	}
	eventually(1)
	for n := range 9 {
		start(fmt.Sprint(n))
	}
	eventually(8)
	for _, read := range reads {
		bounded, stop := context.WithTimeout(viewer(t.Context(), "late"), 50*time.Millisecond)
		require.ErrorIs(t, read(bounded), context.DeadlineExceeded)
		stop()
	}
	require.LessOrEqual(t, blocked(), 8)
}

// A search that its client abandons keeps its place until PostgreSQL has ended it.
func TestAbandonedSearchEndsInPostgreSQL(t *testing.T) {
	t.Parallel()
	_, reader, blocked := searchesBehindALock(t)
	ctx, cancel := context.WithCancel(viewer(t.Context(), "anna"))
	ended := make(chan error)
	go func() {
		_, err := reader.CountDeadLetters(ctx, &query.DeadLetterFilter{Search: "refund"})
		ended <- err
	}()
	testnode.Within(t, `blocked() == 1`, func() bool { return blocked() == 1 })
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Zero(t, blocked())
}
