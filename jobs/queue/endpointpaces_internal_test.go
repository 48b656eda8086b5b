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

// Requests that began before an endpoint's first pace was known lower it only once, though their responses come later.
func TestFirstResponsesCountOnce(t *testing.T) {
	t.Parallel()
	e := NewEndpointPaces(nil, nil)
	began := time.Now()
	e.seen["a"] = &seenResponses{Responses: policy.Responses{Throttled: 3}, since: began}
	e.keep(map[string]policy.Pace{"a": {PerSecond: 10, LoweredAt: began}}, began)
	require.Empty(t, e.take(began.Add(2*time.Second)))
	e.seen["a"] = &seenResponses{Responses: policy.Responses{Throttled: 1}, since: began}
	e.keep(map[string]policy.Pace{"a": {PerSecond: 10, LoweredAt: began}}, began)
	require.Len(t, e.take(began.Add(2*time.Second)), 1)
}
