package queue

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNotifierNamesEachRequestedQueueOnce(t *testing.T) {
	t.Parallel()
	n := &Notifier{other: NewWake()}
	n.RequestDeliveries()
	n.RequestFetch(RouteQueue)
	n.RequestDeliveries()
	require.Equal(t, []string{DeliverQueue, RouteQueue}, n.requested())
	require.Empty(t, n.requested())
}
