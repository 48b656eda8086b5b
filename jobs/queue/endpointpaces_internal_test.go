package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/catalog"
	"postrider/policy"
)

// Late jobs of a limit begin one after the other, a little faster than it allows. None waits long.
func TestSpaceBetweenRequests(t *testing.T) {
	t.Parallel()
	e := NewEndpointPaces(nil, nil)
	a, now := catalog.Rate{Key: "a", Step: 100 * time.Millisecond, Burst: 1}, time.Now()
	check := func(wait time.Duration, inTime bool, limit catalog.Rate, times int, at time.Time) {
		t.Helper()
		got, ok := e.space([]catalog.Rate{limit}, times, at)
		require.Equal(t, []any{wait, inTime}, []any{got, ok})
	}
	for i := range 7 {
		check(time.Duration(i)*80*time.Millisecond, true, a, 1, now)
	}
	check(0, false, a, 1, now)
	check(0, false, a, 1, now.Add(time.Millisecond))
	check(0, true, a, 10, now.Add(time.Second)) // 0.8 s, but at most 0.5 s
	check(200*time.Millisecond, true, a, 1, now.Add(1300*time.Millisecond))
	burst := catalog.Rate{Key: "b", Step: time.Hour, Burst: 3}
	for range 3 {
		check(0, true, burst, 1, now)
	}
	check(0, false, burst, 1, now)
	check(0, true, burst, 1, now.Add(500*time.Millisecond))

	later := now.Add(time.Minute)
	for range 7 {
		check(0, true, catalog.Rate{Key: "c", Step: time.Second, Burst: 100}, 1, later)
		_, _ = e.space([]catalog.Rate{a}, 1, later)
	}
	shared := catalog.Rate{Key: "d", Step: time.Second, Burst: 1}
	_, inTime := e.space([]catalog.Rate{shared, a}, 1, later)
	require.False(t, inTime)
	check(0, true, shared, 1, later) // it took none
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
