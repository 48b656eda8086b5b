package node_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// holdLock has a row of locks until end, as a user's forgotten psql would. The table's rights allow that to operators
// of the database alone.
func (b *bundle) holdLock(t *testing.T, name string) (end func()) {
	t.Helper()
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(t.Context(), "SELECT postrider_internal.lock($1, 0)", name)
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback(context.Background())) }
}

func TestHeldLocks(t *testing.T) {
	t.Parallel()
	b := pendingDeliveries(t, 3)
	end := b.holdLock(t, "partitions")
	require.NoError(t, b.store.Maintenance.EnsurePartitions(t.Context()), "nothing is missing: the lock is not needed")
	b.exec(t, "DO $$ BEGIN EXECUTE format('DROP TABLE postrider_internal.delivery_history_%s', to_char(now() AT TIME "+
		"ZONE 'UTC' + interval '7 days', 'YYYYMMDD')); END $$")
	require.ErrorContains(t, b.store.Maintenance.EnsurePartitions(t.Context()),
		`row "partitions" of postrider_internal.locks is locked by process`)
	end()
	require.NoError(t, b.store.Maintenance.EnsurePartitions(t.Context()))

	end = b.holdLock(t, "rollups")
	merged, err := b.store.Maintenance.MergeRollups(t.Context())
	require.NoError(t, err)
	require.Zero(t, merged, "another node is at it")
	end()
	merged, err = b.store.Maintenance.MergeRollups(t.Context())
	require.NoError(t, err)
	require.NotZero(t, merged)
}

// TestLocksAreExclusive: also when the row is not there yet, and when it is deleted meanwhile.
func TestLocksAreExclusive(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = first.Rollback(context.Background()) }()
	try := func(name string) (mine bool) {
		require.NoError(t, b.pool.QueryRow(t.Context(), "SELECT postrider_internal.try_lock($1, 1)", name).Scan(&mine))
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

func TestLocksOfDeletedSubscriptionsAreRemoved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic(t, "orders")
	sub := b.subscription(t, "orders", "all", nil)
	b.exec(t,
		"SELECT postrider_internal.lock('batching', $1), postrider_internal.lock('batching', 4711), "+
			"postrider_internal.lock('sweeper', 0)", sub.ID)
	require.NoError(t, b.store.Maintenance.Clean(t.Context()))
	require.Equal(t, 4, b.count(t, "SELECT count(*) FROM postrider_internal.locks"))
	require.Equal(t, 1,
		b.count(t, "SELECT count(*) FROM postrider_internal.locks WHERE name = 'batching' AND key = $1", sub.ID))
}
