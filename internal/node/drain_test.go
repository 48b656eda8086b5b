package node_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A publish that began before the deletion may commit after it. What it put on hold has no job that could find out.
func TestDrainCancelsWhatASlowPublishHeldAfterTheDeletion(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic(t, "orders")
	b.subscription(t, "orders", "paused", nil)
	_, err := b.store.Holds.Pause(t.Context(), "orders", "paused", nil)
	require.NoError(t, err)
	b.exec(t, "CREATE FUNCTION slowly() RETURNS trigger "+
		"LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock_shared(4711); RETURN NEW; END'")
	b.exec(t,
		"CREATE TRIGGER slowly BEFORE INSERT ON postrider_internal.deliveries FOR EACH ROW EXECUTE FUNCTION slowly()")
	blocker, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = blocker.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = blocker.Exec(t.Context(), "SELECT pg_advisory_xact_lock(4711)")
	require.NoError(t, err)
	published := make(chan error, 1)
	go func() {
		_, err := b.store.Publisher.Publish(t.Context(), publication("orders", "slow", 1))
		published <- err
	}()
	require.Eventually(t, func() bool {
		return b.count(t,
			"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()") > 0
	}, 30*time.Second, 5*time.Millisecond)
	require.NoError(t, b.store.Subscriptions.Delete(t.Context(), "orders", "paused"))
	require.NoError(t, blocker.Rollback(t.Context()))
	require.NoError(t, <-published)

	require.NoError(t, b.store.Subscriptions.Drain(t.Context()))
	require.Zero(t, b.count(t, "SELECT count(*) FROM postrider_internal.deliveries"))
	require.Equal(t, 1, b.count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'canceled'"))
}
