package policy

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An endpoint that allows 100 requests a second and throttles the others gets at least 90 of them, and throttles less
// than one of 20, whatever rate it got at first.
func TestPaceFindsTheRate(t *testing.T) {
	t.Parallel()
	for _, first := range []float64{3, 101, 200, 5000} {
		var p Pace
		now := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
		offered, accepted := first, 0.0
		var windows [30]struct{ all, throttled float64 } // of ten seconds
		for second := range 300 {
			got := min(offered, 100)
			windows[second/10].all += offered
			windows[second/10].throttled += offered - got
			now = now.Add(time.Second)
			p = p.After(Responses{
				Accepted: int(got), Throttled: int(offered - got), Window: time.Second,
			}, 1, now)
			if p.Knows() {
				offered = p.PerSecond
			}
			if second >= 30 {
				accepted += got
			}
		}
		if first < 100 {
			require.False(t, p.Knows())
			continue
		}
		require.Greater(t, accepted/270, 90.0, first)
		for _, w := range windows[3:] {
			require.Less(t, w.throttled/w.all, 0.05, first)
		}
	}
}

// A burst of late requests is no lower limit of the endpoint. A second one is.
func TestPaceAfterABurst(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	half := Responses{Accepted: 50, Throttled: 50, Window: time.Second}
	p := Pace{PerSecond: 100}.After(half, 1, now)
	require.InDelta(t, 95, p.PerSecond, 0.001)
	require.InDelta(t, 95, p.After(half, 1, now.Add(10*time.Second)).PerSecond, 5)
	require.InDelta(t, 45.1, p.After(half, 1, now.Add(time.Second)).PerSecond, 0.1)
}

// Retry-After closes the endpoint. Then one request tries first, and the rate doubles each second until it is near the
// one before.
func TestPaceAfterRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	p := Pace{PerSecond: 40, ChangedAt: now}
	until := now.Add(10 * time.Second)
	p = p.After(Responses{Accepted: 5, Throttled: 1, Window: time.Second, Until: until}, 1, now)
	require.Equal(t, Pace{PerSecond: 1, Before: 38, ClosedUntil: until, ChangedAt: until, LoweredAt: now}, p)
	require.Equal(t, p, p.After(Responses{Accepted: 3, Window: time.Second}, 1, now.Add(5*time.Second)))
	now = until
	for _, want := range []float64{2, 4, 8, 16, 32, 38} {
		now = now.Add(time.Second)
		p = p.After(Responses{Accepted: int(p.PerSecond), Window: time.Second}, 1, now)
		require.InDelta(t, want, p.PerSecond, 0.001)
	}
}

// An endpoint that allows 100 requests a second and closes for a second beyond that gets more than half of them.
func TestPaceOfAnEndpointThatClosesShortly(t *testing.T) {
	t.Parallel()
	var p Pace
	now := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	offered, accepted := 500.0, 0.0
	for second := range 180 {
		r := Responses{Accepted: int(min(offered, 100)), Window: time.Second}
		now = now.Add(time.Second)
		if r.Throttled = int(offered) - r.Accepted; r.Throttled > 0 {
			r.Until = now.Add(time.Second)
		}
		if p = p.After(r, 1, now); second >= 30 {
			accepted += float64(r.Accepted)
		}
		if offered = p.PerSecond; now.Before(p.ClosedUntil) {
			offered = 0
		}
	}
	require.Greater(t, accepted/150, 50.0)
}

// While an endpoint is down, each request gets another Retry-After. That does not lower the rate that it gets then.
func TestPaceOfAnEndpointThatStaysClosed(t *testing.T) {
	t.Parallel()
	for _, known := range []Pace{{}, {PerSecond: 300}} {
		p, now := known, time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
		for range 100 {
			p = p.After(Responses{Throttled: 1, Window: time.Second, Until: now.Add(time.Minute)}, 1, now)
			now = now.Add(time.Minute + time.Millisecond)
		}
		for range 9 {
			now = now.Add(time.Second)
			p = p.After(Responses{Accepted: int(p.PerSecond), Window: time.Second}, 1, now)
		}
		require.Greater(t, p.PerSecond, 250.0, known)
	}
}

// A ramp ends, even if nothing is throttled.
func TestPaceHasABound(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	p := Pace{}.After(Responses{Accepted: 5000, Throttled: 1, Window: time.Second}, 3, now)
	for range 100 {
		now = now.Add(time.Second)
		p = p.After(Responses{Accepted: int(p.PerSecond), Window: time.Second}, 1, now)
	}
	require.InDelta(t, highestPace, p.PerSecond, 0)
}

// Two nodes that see the same throttling lower the pace once.
func TestPaceChangesOnceASecond(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	seen := Responses{Accepted: 99, Throttled: 1, Window: time.Second}
	p := Pace{PerSecond: 100}.After(seen, 2, now)
	require.Equal(t, p, p.After(seen, 2, now.Add(time.Millisecond)))
	require.Equal(t, p, p.After(Responses{Accepted: 1, Window: time.Second}, 2, now.Add(time.Millisecond)))
	require.Less(t, p.After(seen, 2, now.Add(time.Second)).PerSecond, p.PerSecond)
}

func TestRateLimitReset(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, value string
		more        string // RateLimit-Reset
		want        time.Duration
	}{
		{"RateLimit", `"default";r=0;t=30`, "", 30 * time.Second},
		{"RateLimit", `"default";r=1;t=30`, "", 0},
		{"RateLimit", "limit=100, remaining=0, reset=5", "", 5 * time.Second},
		{"RateLimit-Remaining", "0", "7", 7 * time.Second},
		{"RateLimit-Remaining", "2", "7", 0},
		{"RateLimit", `"burst";r=0;t=30, "day";r=900;t=3600`, "", 30 * time.Second},
		{"RateLimit", `"day";r=900;t=3600,"burst";r=0;t=30, "hour";r=0;t=40`, "", 40 * time.Second},
		{"RateLimit-Remaining", "0", "7200", time.Hour},
		{"RateLimit-Remaining", "0", "1795484278", 0}, // a time
		{"RateLimit-Remaining", "0", "-1", 0},
		{"RateLimit-Remaining", "0", "soon", 0},
		{"X-Other", "0", "7", 0},
	} {
		h := http.Header{}
		h.Set(row.name, row.value)
		if row.more != "" {
			h.Set("RateLimit-Reset", row.more)
		}
		require.Equal(t, row.want, RateLimitReset(h.Get), row)
	}
}
