package jobs

import (
	"testing"
	"time"

	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"
)

// The result is a wait whatever the header: never negative, never so long that adding it to a time overflows.
func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{
		"", "120", "-1", "0", "1e3", "9223372036854775807", "99999999999999999999", "Wed, 21 Oct 2099 07:28:00 GMT",
		"Wednesday, 21-Oct-99 07:28:00 GMT", "soon", " 5",
	} {
		f.Add(seed)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, value string) {
		wait := retryAfter(value, now)
		require.GreaterOrEqual(t, wait, time.Duration(0))
		require.False(t, now.Add(wait).Before(now))
	})
}

func TestRetryAfterUsesTheDatabaseClock(t *testing.T) {
	t.Parallel()
	now := time.Date(2099, 10, 21, 7, 26, 0, 0, time.UTC)
	require.Equal(t, 2*time.Minute, retryAfter("Wed, 21 Oct 2099 07:28:00 GMT", now))
	require.Zero(t, retryAfter("Wed, 21 Oct 2099 07:28:00 GMT", now.Add(time.Hour)))
	require.Equal(t, maxRetryAfter, retryAfter("9223372036854775807", now))
}

func TestRetryAfterValues(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"120": 2 * time.Minute, "0": 0, "-120": 0, "soon": 0, "120.5": 0, "120, 240": 0, "": 0,
		"99999999999999999999": 0, "Wed, 21 Oct 2015 07:28:00 GMT": 0, "Wed, 21 Oct 2099 07:28:00": 0,
	} {
		require.Equal(t, want, retryAfter(value, now), value)
	}
}

// River's own retries are for attempts that could not begin.
func TestRiversRetries(t *testing.T) {
	t.Parallel()
	for attempt, want := range map[int]time.Duration{
		0: time.Second, 1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 7: time.Minute, 999: time.Minute,
	} {
		got := time.Until(retryPolicy{}.NextRetry(&rivertype.JobRow{Attempt: attempt}))
		require.InDelta(t, want.Seconds(), got.Seconds(), 0.9, "attempt %d", attempt)
	}
}
