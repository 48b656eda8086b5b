package catalog_test

import (
	"context"
	"testing"

	"postrider/internal/testnode"

	"github.com/stretchr/testify/require"
)

// holdLock has a row of locks until end, as a user's forgotten psql would. The table's rights allow that to operators
// of the database alone.
func holdLock(t *testing.T, tn *testnode.Node, name string) (end func()) {
	t.Helper()
	tx, err := tn.Pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	require.NoError(t, testnode.ErrorOf(tx.Exec(t.Context(), "SELECT postrider_internal.lock($1, 0)", name)))
	return func() { require.NoError(t, tx.Rollback(context.Background())) }
}

func TestHeldLocks(t *testing.T) {
	t.Parallel()
	tn := testnode.Pending(t, 3)
	end := holdLock(t, tn, "partitions")
	require.NoError(t, tn.System.Maintenance.EnsurePartitions(t.Context()), "nothing is missing: the lock is not needed")
	tn.Exec(t, "DO $$ BEGIN EXECUTE format('DROP TABLE postrider_internal.delivery_history_%s', to_char(now() AT TIME "+
		"ZONE 'UTC' + interval '1 day', 'YYYYMMDD')); END $$")
	require.ErrorContains(t, tn.System.Maintenance.EnsurePartitions(t.Context()),
		`row "partitions" of postrider_internal.locks is locked by process`)
	end()
	require.NoError(t, tn.System.Maintenance.EnsurePartitions(t.Context()))

	end = holdLock(t, tn, "rollups")
	merged := tn.MergeRollups(t)
	require.Zero(t, merged, "another node is at it")
	end()
	merged = tn.MergeRollups(t)
	require.NotZero(t, merged)
}

// TestLocksAreExclusive: also when the row is not there yet, and when it is deleted meanwhile.
func TestLocksAreExclusive(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	first, err := tn.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = first.Rollback(context.Background()) }()
	try := func(name string) (mine bool) {
		require.NoError(t, tn.Pool.QueryRow(t.Context(), "SELECT postrider_internal.try_lock($1, 1)", name).Scan(&mine))
		return mine
	}
	require.True(t, try("a"))
	require.True(t, try("a"), "its transaction has ended")
	_, err = first.Exec(t.Context(), "SELECT postrider_internal.lock('a', 1), postrider_internal.lock('a', 1)")
	require.NoError(t, err)
	require.False(t, try("a"))
	require.True(t, try("b"))
	require.NoError(t, first.Rollback(t.Context()))
	require.True(t, try("a"))
}
