package policy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/policy"
)

func TestBucket(t *testing.T) {
	t.Parallel()
	b := policy.Bucket{Burst: 3, Every: time.Second}
	now := time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC)
	var full time.Time
	for taken := range 3 {
		require.Zero(t, b.Wait(full, now), "%d of 3 are taken", taken)
		full = b.Take(full, now)
	}
	require.Equal(t, time.Second, b.Wait(full, now))
	require.Equal(t, 250*time.Millisecond, b.Wait(full, now.Add(750*time.Millisecond)))
	require.Zero(t, b.Wait(full, now.Add(time.Second)), "one is back")
	require.Equal(t, time.Second, b.Wait(b.Take(full, now.Add(time.Second)), now.Add(time.Second)), "only one")

	require.Equal(t, now.Add(time.Hour+time.Second), b.Take(full, now.Add(time.Hour)), "a full one gets no fuller")
	for range 100 {
		full = b.Take(full, now)
	}
	require.Equal(t, 4*time.Second, b.Wait(full, now), "a debt of three, and one to take")
}
