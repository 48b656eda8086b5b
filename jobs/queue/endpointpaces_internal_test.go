package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/catalog"
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

// An endpoint is closed by the database's clock, however wrong the process's is.
func TestClosedByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	e, now := NewEndpointPaces(nil, nil), time.Now()
	for _, ahead := range []time.Duration{-time.Hour, 0, time.Hour} {
		e.ahead.Store(int64(ahead))
		database := now.Add(ahead)
		e.keep(map[string]policy.Pace{
			"closed": {PerSecond: 1, ClosedUntil: database.Add(time.Minute)},
			"open":   {PerSecond: 1, ClosedUntil: database.Add(-time.Minute)},
		}, now)
		require.True(t, e.closed("closed", now))
		require.False(t, e.closed("open", now))
	}
}

// While responses are being stored, they count.
func TestResponsesCountWhileTheyAreStored(t *testing.T) {
	t.Parallel()
	e, now := NewEndpointPaces(nil, nil), time.Now()
	sub := &catalog.Subscription{EndpointHash: []byte("a")}
	e.Observe(sub, true, now, now.Add(time.Minute))
	require.Len(t, e.take(now.Add(2*time.Second)), 1)
	e.keep(nil, now)
	_, slowed := e.Of(sub)
	require.True(t, slowed)
	require.True(t, e.closed(paceKey(sub), now))
}
