package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/policy"
)

// Late jobs of a paced endpoint begin one after the other, a little faster than its pace, and none waits long.
func TestSpaceBetweenRequests(t *testing.T) {
	t.Parallel()
	e := NewEndpointPaces(nil, nil)
	pace, now := policy.Pace{PerSecond: 10}, time.Now()
	for i := range 7 {
		require.Equal(t, time.Duration(i)*80*time.Millisecond, e.space("a", pace, now))
	}
	require.Equal(t, mostSpaced, e.space("a", pace, now))
	require.Zero(t, e.space("b", pace, now))
	require.Zero(t, e.space("a", pace, now.Add(time.Second)))
}
