package catalog_test

import (
	"context"
	"testing"

	"postrider/internal/testnode"

	"github.com/stretchr/testify/require"
)

// A publish that began before the deletion may commit after it. What it put on hold has no job that could find out.
func TestDrainCancelsWhatASlowPublishHeldAfterTheDeletion(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.Topic(t, "orders")
	tn.Subscribe(t, "orders", "paused", nil)
	_, err := tn.System.Holds.Pause(t.Context(), "orders", "paused", nil)
	require.NoError(t, err)
	tn.Exec(t, "CREATE FUNCTION slowly() RETURNS trigger "+
		"LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock_shared(4711); RETURN NEW; END'")
	tn.Exec(t,
		"CREATE TRIGGER slowly BEFORE INSERT ON postrider_internal.deliveries FOR EACH ROW EXECUTE FUNCTION slowly()")
	blocker, err := tn.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = blocker.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = blocker.Exec(t.Context(), "SELECT pg_advisory_xact_lock(4711)")
	require.NoError(t, err)
	published := make(chan error, 1)
	go func() {
		_, err := tn.System.Publisher.Publish(t.Context(), testnode.Publication("orders", "slow", 1))
		published <- err
	}()
	testnode.Within(t, "a session waits for a lock", func() bool {
		return tn.Count(t,
			"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()") > 0
	})
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", "paused"))
	require.NoError(t, blocker.Rollback(t.Context()))
	require.NoError(t, <-published)

	require.NoError(t, tn.System.Subscriptions.Drain(t.Context()))
	require.Zero(t, tn.Pending(t, ""))
	require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'canceled'"))
}
