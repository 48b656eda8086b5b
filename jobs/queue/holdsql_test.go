package queue_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/testnode"
)

// Who pauses and resumes by SQL does the same as the API, and is written down.
func TestHoldsBySQL(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	tn.Exec(t, "SELECT postrider.pause('orders', 'all', stop_time_to_live => true)")
	tn.Publish(t, "orders", "e", 2)
	require.Equal(t, 2, tn.Count(t, heldQuery))
	tn.Exec(t, "SELECT postrider.resume('orders', 'all')")
	sub, err := tn.System.Subscriptions.Get(t.Context(), "orders", "all")
	require.NoError(t, err)
	require.True(t, sub.Hold.Resuming, "time_to_live_since of pending deliveries is still to be moved")
	_, err = tn.Pool.Exec(t.Context(), "SELECT postrider.pause('orders', 'all')")
	require.ErrorContains(t, err, "still ending its last pause")
	require.NoError(t, tn.System.Holds.MoveTimeToLive(t.Context(), sub.ID))
	require.Equal(t, 2, tn.Refill(t, sub.ID, false, 10))

	tn.Rest(t, "all")
	tn.Exec(t, "SELECT postrider.release('orders', 'all')")
	require.Zero(t, tn.Probations(t, ""))
	tn.Exec(t, "SELECT postrider.pause('orders', 'all')")
	_, err = tn.Pool.Exec(t.Context(), "SELECT postrider.release('orders', 'all')")
	require.ErrorContains(t, err, `event subscription "all" of topic "orders" is paused`)
	_, err = tn.Pool.Exec(t.Context(), "SELECT postrider.pause('orders', 'none')")
	require.ErrorContains(t, err, `topic "orders" has no event subscription "none"`)
	require.Equal(t, 1, tn.Rows(t, "audit",
		"action = 'subscription_paused' AND actor = current_user AND details = '{\"stopTimeToLive\": true}'"))
	require.Equal(t, 4, tn.Rows(t, "audit",
		"action IN ('subscription_paused', 'subscription_resumed', 'subscription_released')"))
}
