package catalog_test

import (
	"testing"

	"postrider/internal/testnode"

	"github.com/stretchr/testify/require"
)

// A publish that began before the deletion may commit after it. What it put on hold has no job that could find out.
func TestDrainCancelsDeliveriesHeldAfterTheDeletion(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.Subscribe(t, "orders", "paused", nil)
	tn.Pause(t, "orders", "paused")
	tn.Exec(t, "CREATE FUNCTION slowly() RETURNS trigger "+
		"LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock_shared(4711); RETURN NEW; END'")
	tn.Exec(t,
		"CREATE TRIGGER slowly BEFORE INSERT ON postrider_internal.deliveries FOR EACH ROW EXECUTE FUNCTION slowly()")
	end := tn.OpenTransaction(t, "SELECT pg_advisory_xact_lock(4711)")
	published := make(chan error, 1)
	go func() {
		_, err := tn.System.Publisher.Publish(t.Context(), testnode.Publication("orders", "slow", 1))
		published <- err
	}()
	tn.AwaitLock(t, "")
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", "paused"))
	end(false)
	require.NoError(t, <-published)

	require.NoError(t, tn.System.Subscriptions.Drain(t.Context()))
	require.Zero(t, tn.Pending(t, ""))
	require.Equal(t, 1, tn.Rows(t, "deliveries", "state = 'canceled'"))
}
