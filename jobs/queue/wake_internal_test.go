package queue

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWakeReturnsEachRequestedQueueOnce(t *testing.T) {
	t.Parallel()
	w := NewWake()
	w.Request(DeliverQueue)
	w.Request(RouteQueue)
	w.Request(DeliverQueue)
	require.Equal(t, DeliverQueue, w.Next())
	require.Equal(t, RouteQueue, w.Next())
	require.Empty(t, w.Next())
}
