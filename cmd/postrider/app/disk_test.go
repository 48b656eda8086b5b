package app_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/postgres"
)

// full has PostgreSQL fail as it does when its disk is full: on new events, and on new tables.
const full = `CREATE FUNCTION public.full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN RAISE EXCEPTION USING ERRCODE = '53100',
	    MESSAGE = 'could not extend file "base/5/16384": No space left on device'; END $$;
	CREATE TRIGGER full_disk BEFORE INSERT
	    ON postrider_internal.events FOR EACH STATEMENT EXECUTE FUNCTION public.full_disk()`

func TestFullDiskIsNoticedUntilSpaceIsFree(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic(t, "orders")
	require.False(t, b.store.Disk.DiskFull())
	b.exec(t, full)
	_, err := b.store.Publisher.Publish(t.Context(), publication("orders", "e", 1))
	require.ErrorIs(t, err, postgres.ErrUnavailable)
	require.True(t, postgres.IsDiskFull(err))
	require.True(t, b.store.Disk.DiskFull())
	b.exec(t, "DROP TRIGGER full_disk ON postrider_internal.events")
	require.Eventually(t, func() bool { return !b.store.Disk.DiskFull() }, 20*time.Second, 50*time.Millisecond)
	b.publish(t, "orders", "e", 1)
	require.Zero(t, b.count(t, "SELECT count(*) FROM pg_class WHERE relname LIKE 'disk_probe%'"), "a probe leaves nothing")
}

func TestOtherErrorsAreNoFullDisk(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.store.Disk.Noticed(nil)
	b.store.Disk.Noticed(postgres.ErrUnavailable)
	require.False(t, b.store.Disk.DiskFull())
	require.NoError(t, postgres.ProbeDisk(t.Context(), b.pool))
}
