package policy_test

import (
	"slices"
	"testing"

	"postrider/policy"

	"github.com/stretchr/testify/require"
)

// afterAll returns the cap after the results of several attempts under the default policy.
func afterAll(t testing.TB, c policy.Cap, results ...policy.Result) policy.Cap {
	t.Helper()
	p := builtin(t, policy.DefaultName)
	for _, r := range results {
		c = c.After(p.Classify(policy.KindWebhook, r), r)
	}
	return c
}

func times(n int, r policy.Result) []policy.Result { return slices.Repeat([]policy.Result{r}, n) }

func TestNewCap(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name           string
		limit, workers int
		want           int
	}{
		{"64 of 1,000 workers", 0, 1000, 64},
		{"half of 128 workers", 0, 128, 64},
		{"half of 100 workers", 0, 100, 50},
		{"half of 5 workers, rounded down", 0, 5, 2},
		{"one worker", 0, 1, 1},
		{"no worker", 0, 0, 1},
		{"maxConcurrentDeliveries 1", 1, 1000, 1},
		{"maxConcurrentDeliveries 20", 20, 1000, 20},
		{"maxConcurrentDeliveries 200", 200, 1000, 64},
		{"maxConcurrentDeliveries above half the workers", 80, 100, 50},
	} {
		require.Equal(t, tt.want, policy.NewCap(tt.limit, tt.workers).Value(), tt.name)
	}
}

func TestCapAfter(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		met  policy.Result
		want int // from 64
	}{
		{"a success", status(200), 65},
		{"no response within the ack timeout", failure(policy.ErrorTimeout), 32},
		{"connection refused or reset", failure(policy.ErrorSocket), 32},
		{"the host name has no address", failure(policy.ErrorDNS), 32},
		{"canceled by postrider", failure(policy.ErrorCanceled), 64},
		{"no credentials for the request", failure(policy.ErrorUnauthorized), 64},
		{"an address that must not be called", failure(policy.ErrorArgument), 64},
		{"a broker's full queue", failure(policy.ErrorFull), 64},
		{"a broker's disabled queue", failure(policy.ErrorDisabled), 64},
		{"a broker that requires a session id", failure(policy.ErrorSession), 64},
		{"202 is a success", status(202), 65},
		{"302", status(302), 64},
		{"400", status(400), 64},
		{"408, a response with the outcome TimedOut", status(408), 64},
		{"429", status(429), 64},
		{"500", status(500), 64},
		{"503", status(503), 64},
	} {
		require.Equal(t, tt.want, afterAll(t, policy.NewCap(0, 1000), tt.met).Value(), tt.name)
	}
	p, created := builtin(t, "ga-2018"), status(201)
	c := policy.NewCap(0, 1000).After(p.Classify(policy.KindWebhook, created), created)
	require.Equal(t, 64, c.Value(), "the policy defines success: 201 is none under the pages of 2017 and 2018")
}

func TestCapFallsToOneAndRecovers(t *testing.T) {
	t.Parallel()
	c := policy.NewCap(0, 1000)
	for _, want := range []int{32, 16, 8, 4, 2, 1, 1, 1} {
		c = afterAll(t, c, failure(policy.ErrorTimeout))
		require.Equal(t, want, c.Value())
	}
	// each round has as many successes as requests in flight
	for _, want := range []int{2, 4, 8, 16, 32, 64, 128, 256, 500, 500} {
		c = afterAll(t, c, times(c.Value(), status(204))...)
		require.Equal(t, want, c.Value())
	}
}

// 429 halves the requests in flight once for those that began before it. Further ones leave those that were accepted.
func TestCapThrottled(t *testing.T) {
	t.Parallel()
	c := policy.NewCap(0, 1000).Throttled(40, false)
	require.Equal(t, 20, c.Value())
	for inFlight := 39; inFlight > 10; inFlight-- {
		c = c.Throttled(inFlight, true)
	}
	require.Equal(t, 10, c.Value())
	require.Equal(t, 10, c.Throttled(30, true).Value(), "a response to an earlier request raises nothing")
	c = afterAll(t, c, times(24, status(200))...)
	require.Equal(t, 34, c.Value(), "one more per success until the concurrency is near that of the response")
	c = afterAll(t, c, times(33, status(200))...)
	require.Equal(t, 34, c.Value())
	c = afterAll(t, c, status(200))
	require.Equal(t, 35, c.Value(), "and then one more per round")
	above := afterAll(t, c, times(12*(35+46)/2, status(200))...)
	require.Equal(t, 47, above.Value())
	require.Equal(t, 49, afterAll(t, above, times(2, status(200))...).Value(), "quickly above: it allows more than then")
	require.Equal(t, 36, afterAll(t, c.Unthrottled(), status(200)).Value())
	require.Equal(t, 1, c.Throttled(1, false).Value())
}

func TestCapWithin(t *testing.T) {
	t.Parallel()
	c := afterAll(t, policy.NewCap(0, 1000), times(136, status(200))...)
	require.Equal(t, 200, c.Value())
	require.Equal(t, 200, c.Within(0, 2000).Value())
	require.Equal(t, 50, c.Within(0, 100).Value(), "with fewer workers")
	require.Equal(t, 10, c.Within(10, 1000).Value(), "a lower limit")
	require.Equal(t, 11, afterAll(t, c.Within(10, 1000).Within(20, 1000), status(200)).Value())
	require.Equal(t, 1, c.Within(0, 0).Value())
	throttled := c.Throttled(40, false).Within(100, 1000)
	require.True(t, throttled.IsThrottled(), "another limit does not end the throttling")
	require.Equal(t, 20, throttled.Value())
	var zero policy.Cap
	require.Equal(t, 1, afterAll(t, zero, times(5, status(200))...).Value())
	require.Equal(t, 1, afterAll(t, zero, failure(policy.ErrorSocket)).Value())
}

// FuzzCap applies any sequence of results to a cap. It stays within its bounds, only failures without a response lower
// it, and enough successes restore its maximum.
func FuzzCap(f *testing.F) {
	f.Add(0, 1000, []byte{0, 14, 14, 14, 14, 14, 14, 14, 14})
	f.Add(70, 1000, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 17, 12})
	f.Add(-1, -1, []byte{0, 14})
	f.Fuzz(func(t *testing.T, limit, workers int, course []byte) {
		limit, workers = limit%10_000, workers%10_000
		most := max(workers/2, 1)
		if limit > 0 {
			most = min(most, limit)
		}
		c := policy.NewCap(limit, workers)
		for _, met := range course {
			r := fuzzResult(met)
			before := c.Value()
			c = afterAll(t, c, r)
			require.GreaterOrEqual(t, c.Value(), 1)
			require.LessOrEqual(t, c.Value(), most)
			require.LessOrEqual(t, c.Value(), before+1)
			unanswered := r.Err == policy.ErrorTimeout || r.Err == policy.ErrorSocket || r.Err == policy.ErrorDNS
			require.Equal(t, unanswered && before > 1, c.Value() < before, "%s: from %d to %d", r, before, c.Value())
		}
		c = afterAll(t, c, times(most, status(200))...)
		require.Equal(t, most, c.Value(), "it recovers")
	})
}
