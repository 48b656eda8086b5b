package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
)

// Late jobs of a limit begin one after the other, a little faster than it allows. None waits long.
func TestSpaceBetweenRequests(t *testing.T) {
	t.Parallel()
	s := &spacing{}
	a, now := catalog.Rate{Key: "a", Step: 100 * time.Millisecond, Burst: 1}, time.Now()
	check := func(wait time.Duration, inTime bool, limit catalog.Rate, times int, at time.Time) {
		t.Helper()
		got, ok := s.space(limit, times, at)
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
}
